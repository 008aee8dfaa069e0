// Training over ranks that divide experts gives the numbers of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/trainer/compose/distributed/mesh_job.h"
#include "trainer/learner/muon.h"
#include "trainer/learner/sgd.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::Plan;

const std::vector<std::vector<trainer::MeshAxis>> kExpertMeshes{{{"expert", 2}},
                                                                {{"expert", 4}},
                                                                {{"data", 2}, {"expert", 2}},
                                                                {{"expert", 2}, {"fsdp", 2}},
                                                                {{"expert", 2}, {"model", 2}},
                                                                {{"expert", 2}, {"fsdp", 2}, {"model", 2}}};

TEST(OverRanks, DividedExpertsWithSgdAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama()), .learner = learner<trainer::Sgd::Config>()}, kLosses,
        kExpertMeshes);
}
TEST(OverRanks, DividedExpertsAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama(),
                                  "gating=TopK{k=2 regularizers=[LossFreeBalancing{},"
                                  "LoadBalancingLoss{},RouterZLoss{}]}"),
         .accumulation = 2},
        kMagnified, kExpertMeshes);
}
TEST(OverRanks, DividedExpertsOfACapacityAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama(), "gating=TopK{k=2 capacity=Capacity{factor=1 min=1}}"),
         .learner = learner<trainer::Sgd::Config>()},
        kLosses,
        {{{"expert", 2}}, {{"expert", 4}}, {{"data", 2}, {"expert", 2}}, {{"expert", 2}, {"model", 2}}});
}
TEST(OverRanks, DividedExpertsBesideASharedOneAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama(), "gating=TopK{k=2} shared=FeedForward{hidden_dim=8}"),
         .learner = learner<trainer::Sgd::Config>()},
        kLosses, {{{"expert", 4}}, {{"expert", 2}, {"fsdp", 2}}, {{"expert", 2}, {"model", 2}}});
}
TEST(OverRanks, DividedExpertsWithBiasesAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_gpt2()), .learner = learner<trainer::Sgd::Config>()}, kLosses,
        {{{"expert", 4}}, {{"expert", 2}, {"fsdp", 2}}, {{"expert", 2}, {"model", 2}}});
}
TEST(OverRanks, DividedExpertsWithMuonAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama()), .learner = learner<trainer::Muon::Config>()}, kMagnified,
        {{{"expert", 2}}, {{"expert", 2}, {"fsdp", 2}}});
}
// Where nothing can be divided by experts, the axis divides rows alone.
TEST(OverRanks, AModelWithoutExpertsIsDividedByRows) {
  check({.learner = learner<trainer::Sgd::Config>()}, kLosses,
        {{{"expert", 4}}, {{"data", 2}, {"expert", 2}}, {{"expert", 2}, {"fsdp", 2}}});
}
TEST(OverRanks, ExpertsOfOneRankAreItsOwn) {
  const auto device = build().registry.open("cpu");
  const Plan plan = trainer::compose_training(of_four_experts(tiny_llama()), adamw(),
                                              options_of({}, {{"expert", 4}}, 1), catalog(), device->info());
  int experts = 0;
  for (const auto& [name, type] : plan.persistent_types)
    if (name.find("/experts/") != std::string::npos) {
      ++experts;
      EXPECT_EQ(type.elements() * 4, plan.divided.at(name).whole.elements()) << name;
    }
  EXPECT_GT(experts, 0);
}
TEST(OverRanks, ExpertsThatAreNotDividedEvenlyAreRefused) {
  const std::string message = message_of([] {
    const auto device = build().registry.open("cpu");
    trainer::compose_training(of_four_experts(tiny_llama()), adamw(), options_of({}, {{"expert", 3}}, 0),
                              catalog(), device->info());
  });
  EXPECT_THAT(message, HasSubstr("the axis expert must divide the 4 experts; 2 and 4 do; found expert=3"));
}

}  // namespace
}  // namespace meshloom::tests
