// Fine-tuning over 4-bit weights from the command line: start from a plain run, resume, generate, merged
// export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "tests/trainer/run/binary.h"
#include "tests/trainer/run/stored.h"
#include "trainer/checkpoint/checkpoint.h"

namespace meshloom::tests {
namespace {

using ::testing::HasSubstr;

const std::string kQlora = " --modify 'Quantize{}' --modify 'Adapt{with=Lora{rank=2} except=\"**.head\"}' ";

TEST(QuantizeRun, TunesResumesAndMerges) {
  const Scratch scratch;
  const std::string data =
      " --data " + scratch.file("text.txt", sample_text(20000)) + " --device cpu --quiet ";
  const std::string base = scratch.path("base"), tuned = scratch.path("tuned"),
                    straight = scratch.path("straight");
  ASSERT_EQ(meshloom("train tiny --steps 2" + data + "--out " + base).code, 0);
  const Outcome run = meshloom("train --init " + base + kQlora + "--steps 3" + data + "--out " + tuned);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("14 tensors of"));
  ASSERT_EQ(meshloom("train --init " + base + kQlora + "--steps 5 --resume" + data + "--out " + tuned).code,
            0);
  ASSERT_EQ(meshloom("train --init " + base + kQlora + "--steps 5" + data + "--out " + straight).code, 0);
  EXPECT_EQ(read_text(trainer::checkpoint_path(tuned, 5) + "/model.safetensors"),
            read_text(trainer::checkpoint_path(straight, 5) + "/model.safetensors"));

  const auto quiet = [](const std::string&) {};
  const trainer::Checkpoint before = trainer::open_newest(base, quiet),
                            after = trainer::open_newest(tuned, quiet);
  const std::string q = "decoder/stack/layer0/attention/q_proj/";
  EXPECT_EQ(after.model.find(q + "weight"), nullptr);
  ASSERT_NE(after.model.find(q + "weight_codes"), nullptr);
  EXPECT_EQ(after.model.find(q + "weight_codes")->dtype, "U8");
  EXPECT_LT(after.model.find(q + "weight_codes")->bytes(), before.model.find(q + "weight")->bytes() / 7);
  EXPECT_EQ(read_tensor<float>(after.model, "decoder/embedding/weight"),
            read_tensor<float>(before.model, "decoder/embedding/weight"));

  // A run over 4-bit weights starts another one, and generates.
  EXPECT_EQ(
      meshloom("train --init " + tuned + kQlora + "--steps 1" + data + "--out " + scratch.path("next")).code,
      0);
  EXPECT_EQ(meshloom("generate --device cpu --tokens 3 --prompt In --checkpoint " + tuned).code, 0);

  EXPECT_THAT(meshloom("export --checkpoint " + tuned + " --out " + scratch.path("x")).err,
              HasSubstr("--merge"));
  const Outcome merged =
      meshloom("export --merge --checkpoint " + tuned + " --out " + scratch.path("merged"));
  ASSERT_EQ(merged.code, 0) << merged.err;
  const trainer::SafetensorsFile exported(scratch.path("merged") + "/model.safetensors");
  const std::vector<float> was = read_tensor<float>(before.model, q + "weight"),
                           is = read_tensor<float>(exported, "model.layers.0.self_attn.q_proj.weight");
  ASSERT_EQ(was.size(), is.size());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < was.size(); ++i) {
    error += std::pow(was[i] - is[i], 2);
    size += std::pow(was[i], 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(std::sqrt(error / size), 0.2);
}

// A GGUF file's experts become f32, which is said; and what is in blocks is not packed into four bits.
TEST(QuantizeRun, SaysWhatBecomesOfBlocks) {
  const Scratch scratch;
  const std::string data =
      " --data " + scratch.file("text.txt", sample_text(4000)) + " --device cpu --quiet ";
  const std::string file = scratch.path("mixture.gguf"), kept = scratch.path("kept");
  ASSERT_EQ(meshloom("train tiny --steps 1 --replace 'FeedForward=MoE{num_experts=3}'" + data + "--out " +
                     scratch.path("mixture"))
                .code,
            0);
  ASSERT_EQ(
      meshloom("export --checkpoint " + scratch.path("mixture") + " --format gguf --dtype q8_0 --out " + file)
          .code,
      0);
  const Outcome imported = meshloom("import " + file + " --keep-quantized --out " + kept);
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.err, HasSubstr("note: 6 of 16 weights in blocks are stored in f32"));
  EXPECT_THAT(meshloom("train --init " + kept + kQlora + data + "--out " + scratch.path("run")).err,
              HasSubstr("q_proj/weight_codes'; found it is absent; the layer has 'weight_blocks'"));
}

TEST(QuantizeRun, WithoutAdaptersTheRestLearnsAndExportNeedsNoMerge) {
  const Scratch scratch;
  const std::string data =
      " --data " + scratch.file("text.txt", sample_text(20000)) + " --device cpu --quiet ";
  const std::string run = scratch.path("run");
  ASSERT_EQ(meshloom("train tiny --modify 'Quantize{}' --steps 2" + data + "--out " + run).code, 0);
  EXPECT_EQ(meshloom("export --merge --checkpoint " + run + " --out " + scratch.path("x")).code, 1);
  const Outcome exported = meshloom("export --checkpoint " + run + " --out " + scratch.path("hf"));
  EXPECT_EQ(exported.code, 0) << exported.err;
}

TEST(QuantizeRun, PlanShowsTheMemory) {
  const auto plan = [](const std::string& options) {
    const Outcome outcome = meshloom("plan tiny --device null --json " + options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const nlohmann::json all = plan(""), packed = plan("--modify 'Quantize{}'");
  EXPECT_EQ(all["parameters"], packed["parameters"]);
  EXPECT_LT(packed["trainable_parameters"], all["trainable_parameters"]);
  EXPECT_LT(packed["memory"]["parameters"].get<double>(), 0.7 * all["memory"]["parameters"].get<double>());
  EXPECT_EQ(meshloom("config tiny --modify 'Quantize{with=\"RMSNorm{}\"}'").code, 1);
}

}  // namespace
}  // namespace meshloom::tests
