// Runs with dropout: the same bits after a resume, the same loss however the batch is cut, none of it in what
// is exported.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

std::vector<double> losses(const std::string& run) {
  std::vector<double> all;
  std::istringstream text(read_text(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);)
    all.push_back(nlohmann::json::parse(line)["loss"].get<double>());
  return all;
}

TEST(DropoutRun, ResumesToTheSameBits) {
  const Scratch scratch;
  const std::string common =
      "train tiny --device cpu --sample 0 --set sequence=16 --set batch=4 "
      "--set eval_batches=1 --set checkpoint_every=10 "
      "--modify 'SetWhere{class=Attention field=dropout value=0.2}' "
      "--modify 'Wrap{where=\"**.{attention,feed_forward}\" with=Dropout{rate=0.2} slot=base}' "
      "--modify 'Wrap{where=model.decoder.stack with=Dropout{input=true} slot=base}' --data " +
      scratch.file("text", sample_text(20000)) + " --out ";
  const auto run = [&](const std::string& out, const std::string& more) {
    const Outcome outcome = meshloom(common + scratch.path(out) + " " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return losses(scratch.path(out));
  };
  const std::vector<double> whole = run("whole", "--steps 20");
  run("halves", "--steps 10");
  EXPECT_EQ(run("halves", "--steps 20 --resume"), whole);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_text(scratch.path("whole/step-00000020/") + file),
              read_text(scratch.path("halves/step-00000020/") + file));
  const std::vector<double> parts = run("parts", "--steps 20 --set accumulation=2"),
                            other = run("other", "--steps 20 --set seed=1");
  ASSERT_EQ(parts.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-4 * whole[i]) << i;
  EXPECT_NE(other, whole);
  const Outcome exported =
      meshloom("export --checkpoint " + scratch.path("whole") + " --out " + scratch.path("hf"));
  EXPECT_EQ(exported.code, 0) << exported.err;
}

}  // namespace
}  // namespace meshloom::tests
