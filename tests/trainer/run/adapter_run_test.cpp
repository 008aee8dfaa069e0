// Fine-tuning with adapters from the command line: edits by --modify, start from another run, merged export,
// lint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/trainer/run/binary.h"
#include "tests/trainer/run/stored.h"
#include "trainer/checkpoint/checkpoint.h"

namespace meshloom::tests {
namespace {

using ::testing::HasSubstr;

const std::string kAdapt = " --modify 'Adapt{with=Lora{rank=2} where=\"**.attention.{q,v}_proj\"}' ";

TEST(AdapterRun, TunesAndMerges) {
  const Scratch scratch;
  const std::string data =
      " --data " + scratch.file("text.txt", sample_text(20000)) + " --device cpu --quiet ";
  const std::string base = scratch.path("base"), tuned = scratch.path("tuned");
  ASSERT_EQ(meshloom("train tiny --steps 2" + data + "--out " + base).code, 0);
  const Outcome run = meshloom("train --init " + base + kAdapt + "--steps 3" + data + "--out " + tuned);
  ASSERT_EQ(run.code, 0) << run.err;

  const auto quiet = [](const std::string&) {};
  const trainer::Checkpoint before = trainer::open_newest(base, quiet),
                            after = trainer::open_newest(tuned, quiet);
  std::size_t adapters = 0;
  for (const trainer::StoredTensor& tensor : after.model.tensors()) {
    const bool adapter = tensor.name.find("lora_") != std::string::npos;
    adapters += adapter;
    EXPECT_EQ(after.optimizer.find("optimizer/m/" + tensor.name) != nullptr, adapter) << tensor.name;
    if (!adapter) {
      EXPECT_EQ(read_tensor<float>(before.model, tensor.name), read_tensor<float>(after.model, tensor.name))
          << tensor.name;
    }
  }
  EXPECT_EQ(adapters, 2u * 2u * 2u);

  // It goes on, and the same command gives the same bits.
  ASSERT_EQ(meshloom("train --init " + base + kAdapt + "--steps 5 --resume" + data + "--out " + tuned).code,
            0);
  const std::string straight = scratch.path("straight");
  ASSERT_EQ(meshloom("train --init " + base + kAdapt + "--steps 5" + data + "--out " + straight).code, 0);
  EXPECT_EQ(read_text(trainer::checkpoint_path(tuned, 5) + "/model.safetensors"),
            read_text(trainer::checkpoint_path(straight, 5) + "/model.safetensors"));

  const Outcome unmerged = meshloom("export --checkpoint " + tuned + " --out " + scratch.path("x"));
  EXPECT_EQ(unmerged.code, 1);
  EXPECT_THAT(unmerged.err, HasSubstr("--merge"));
  const Outcome merged =
      meshloom("export --merge --checkpoint " + tuned + " --out " + scratch.path("merged"));
  ASSERT_EQ(merged.code, 0) << merged.err;
  const trainer::SafetensorsFile exported(scratch.path("merged") + "/model.safetensors");
  const std::string theirs = "model.layers.0.self_attn.", ours = "decoder/stack/layer0/attention/";
  EXPECT_NE(read_tensor<float>(exported, theirs + "q_proj.weight"),
            read_tensor<float>(before.model, ours + "q_proj/weight"));
  EXPECT_EQ(read_tensor<float>(exported, theirs + "k_proj.weight"),
            read_tensor<float>(before.model, ours + "k_proj/weight"));
  EXPECT_EQ(meshloom("export --merge --checkpoint " + base + " --out " + scratch.path("y")).code, 1);
}

TEST(AdapterRun, PlanSaysWhatLearns) {
  const auto plan = [](const std::string& options) {
    const Outcome outcome = meshloom("plan tiny --device null --json " + options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const nlohmann::json all = plan(""), adapted = plan(kAdapt);
  EXPECT_EQ(all["trainable_parameters"], all["parameters"]);
  EXPECT_EQ(adapted["parameters"].get<int>() - all["parameters"].get<int>(),
            adapted["trainable_parameters"].get<int>());
  EXPECT_LT(5 * adapted["memory"]["optimizer"].get<std::int64_t>(),
            all["memory"]["optimizer"].get<std::int64_t>());
  EXPECT_LT(adapted["flops_per_step"], all["flops_per_step"]);
}

TEST(AdapterRun, SelectionsMustMatch) {
  const auto error = [](const std::string& modifier) {
    const Outcome outcome = meshloom("config tiny --modify '" + modifier + "'");
    EXPECT_EQ(outcome.code, 1) << modifier;
    return outcome.err;
  };
  EXPECT_THAT(error("Adapt{with=Lora{} where=\"**.query\"}"), HasSubstr("must match at least one node"));
  EXPECT_THAT(error("Adapt{with=Linear{}}"), HasSubstr("must be an adapter"));
  EXPECT_THAT(error("Replace{class=RMSNrm with=\"LayerNorm{}\"}"), HasSubstr("did you mean 'RMSNorm'?"));
  EXPECT_THAT(error("SetWhere{class=RMSNorm field=epsilon value=1}"), HasSubstr("no field 'epsilon'"));
  EXPECT_THAT(error("SetWhere{class=RMSNorm matches=2 field=eps value=1}"),
              HasSubstr("must match 2 nodes; found 3"));
  const Outcome idle = meshloom("config tiny --modify 'SetWhere{class=RMSNorm field=eps value=1e-5}'");
  EXPECT_EQ(idle.code, 0);
  EXPECT_THAT(idle.err, HasSubstr("changes nothing"));
}

TEST(AdapterRun, DiffAndLint) {
  const Outcome diff = meshloom("config tiny --set model.decoder.norm.eps=0.5 --against tiny");
  EXPECT_EQ(diff.code, 0);
  EXPECT_EQ(diff.out, "-model.decoder.norm.eps: 1e-05\n+model.decoder.norm.eps: 0.5\n");
  EXPECT_EQ(meshloom("config tiny --against tiny").out, "");
  EXPECT_EQ(meshloom("config tiny --lint --device cpu").code, 0);
  EXPECT_THAT(meshloom("config tiny --lint --device cpu --rule '.* => SetAccumulation{accumulation=3}'").out,
              HasSubstr("train refuses the recipe that they make: accumulation"));
  // The head keeps its bits also where an adapter was put around it before.
  const Outcome both =
      meshloom("config tiny --modify 'Adapt{with=Lora{rank=2}}' --modify 'Quantize{}' --diff");
  EXPECT_THAT(both.out, HasSubstr("q_proj.base: Nf4Linear"));
  EXPECT_THAT(both.out, testing::Not(HasSubstr("head.base: Nf4Linear")));
  EXPECT_THAT(meshloom("config tiny --replace 'RMSNorm=RMSNorm{}'").err, HasSubstr("changes nothing"));
  const Outcome lint = meshloom(
      "config tiny --lint --device cpu --rule 'cpu-.* => SetAccumulation{accumulation=2}, "
      "SetField{path=accumulation value=4}' "
      "--rule 'cpu-as-.* => SetAccumulation{accumulation=1}' --rule 'gpu-.* => SetDType{dtype=f32}' "
      "--rule 'vulkan-.* => Replace{class=Nothing with=\"Linear{}\"}' --rule 'cpu-host.* => "
      "SetField{path=batch value=4}'");
  EXPECT_EQ(lint.code, 1);
  EXPECT_THAT(lint.out, HasSubstr("the rule's other modifiers make the same recipe without it"));
  EXPECT_THAT(lint.out, HasSubstr("can never match: an earlier rule"));
  EXPECT_THAT(lint.out, HasSubstr("no hardware has such a name"));
  EXPECT_THAT(lint.out, HasSubstr("must match at least one node"));
  EXPECT_THAT(lint.out, HasSubstr("changes nothing"));
}

}  // namespace
}  // namespace meshloom::tests
