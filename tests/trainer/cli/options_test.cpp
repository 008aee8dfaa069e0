// Options that set a field, JSON output of commands, and the patterns of kernel rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ConfigCommand, TakesEpochsRateAndBatch) {
  const Scratch scratch;
  const std::string data = " --data " + scratch.file("text", sample_text(4000));
  EXPECT_THAT(meshloom("config tiny --lr 0.125 --batch 2 --diff").out,
              HasSubstr("-learner.peak_learning_rate: 0.003\n+learner.peak_learning_rate: 0.125\n"));
  // 4000 bytes, 5 % held out: 59 rows of 64 tokens, of which one is given up for offsets; in batches of 4.
  const Outcome three = meshloom("config tiny --epochs 3 --diff" + data);
  EXPECT_THAT(three.out, HasSubstr("+steps: 44\n"));
  EXPECT_THAT(three.out, HasSubstr("+learner.schedule.total_steps: 44\n"));
  EXPECT_THAT(three.err, HasSubstr("make 44 steps; the learning rate's schedule has the same length"));
  EXPECT_THAT(meshloom("config tiny --epochs 0.5 --batch 8 --diff" + data).out, HasSubstr("+steps: 4\n"));
  EXPECT_THAT(meshloom("config tiny --epochs 1 --set learner.schedule.total_steps=999 --diff" + data).out,
              HasSubstr("+learner.schedule.total_steps: 999\n"));
  const auto diff = nlohmann::json::parse(meshloom("config tiny --batch 2 --diff --json").out);
  EXPECT_EQ(diff, nlohmann::json::parse(R"({"batch": {"before": "4", "after": "2"}})"));
}

TEST(TrainCommand, TakesEpochsWithInitAndPrintsOneJsonObject) {
  const Scratch scratch;
  const std::string data = " --device cpu --data " + scratch.file("text", sample_text(4000));
  ASSERT_EQ(meshloom("train tiny --steps 1 --quiet --out " + scratch.path("a") + data).code, 0);
  const Outcome tuned =
      meshloom("train --init " + scratch.path("a") + " --epochs 0.1 --lr 1e-4 --batch 2 --json --out " +
               scratch.path("b") + data);
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const auto json = nlohmann::json::parse(tuned.out);  // one object, and nothing else
  EXPECT_EQ(json["step"], 3);                          // a tenth of 58 rows, by twos
  EXPECT_EQ(json["checkpoint"], scratch.path("b") + "/step-00000003");
  EXPECT_TRUE(json["loss"].is_number());
  EXPECT_EQ(json["stopped"], false);
}

TEST(KernelRules, TakeThePatternsOfModifiers) {
  const std::string plan = "plan tiny --device null --as h100 --set dtype=f32 ";
  const Outcome names = meshloom(
                    plan + "--set 'kernels=[KernelRule{op=matmul path=\"**.{q,k}_proj\" variant=naive}]'"),
                regex = meshloom(
                    plan + "--set 'kernels=[KernelRule{op=matmul path=\".*[qk]_proj\" variant=naive}]'"),
                everything =
                    meshloom(plan + "--set 'kernels=[KernelRule{op=\".*\" path=\".*\" variant=naive}]'");
  EXPECT_EQ(names.code, 0) << names.err;
  EXPECT_EQ(names.out, regex.out);
  EXPECT_THAT(names.out, HasSubstr("naive ("));
  EXPECT_THAT(names.err, Not(HasSubstr("deprecated")));
  EXPECT_THAT(regex.err, HasSubstr("kernel rule path '.*[qk]_proj': regular expressions are deprecated"));
  EXPECT_THAT(everything.err, Not(HasSubstr("deprecated")));  // older recipes are full of it
  EXPECT_THAT(meshloom(plan + "--set 'kernels=[KernelRule{op=matmul path=\"a..b\" variant=naive}]'").err,
              HasSubstr("names are separated by single dots"));
}

// A variant for 16 bits is refused for what it lacks, not because it takes no f32 copies.
TEST(KernelRules, SayWhyTheCallItselfIsRefused) {
  const Outcome refused = meshloom(
      "plan tiny --device null:opencl --as rtx4090 --set dtype=f16 --rule '.* => SetKernel{op=matmul "
      "variant=dpas}'");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("a variant named by a rule must fit"));
  EXPECT_THAT(refused.err, Not(HasSubstr("not f32")));
}

TEST(ConfigCommand, NumbersTheModifiersOfAllOptions) {
  EXPECT_THAT(meshloom("config tiny --modify Quantize{} --modify SetDType{dtype=f32} --diff").err,
              HasSubstr("--modify[1] SetDType: changes nothing"));
  EXPECT_THAT(
      meshloom("config tiny --modify Quantize{} --modify 'Wrap{class=MoE with=Monitor{} slot=base}'").err,
      HasSubstr("--modify[1] Wrap: must apply"));
}

}  // namespace
}  // namespace meshloom::tests
