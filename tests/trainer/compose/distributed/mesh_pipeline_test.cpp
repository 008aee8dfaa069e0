// Training over the stages of a pipeline gives the numbers of one rank, and where nothing is added in another order its bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/trainer/compose/distributed/mesh_job.h"
#include "trainer/learner/sgd.h"

namespace meshloom::tests {
namespace {

using trainer::Plan;
using trainer::Topology;

// Every rank computes what one rank does, in the same order: bit for bit.
void check_bits(const Job& job, const std::vector<trainer::MeshAxis>& mesh) {
  SCOPED_TRACE(Topology(mesh).text() + ", " + std::string(to_string(job.schedule)));
  const Outcome one = run(job, {}), many = run(job, mesh);
  EXPECT_EQ(many.metrics, one.metrics);
  for (const auto& [name, values] : one.values) {
    if (name.starts_with("eval/") || name == "logits") continue;
    ASSERT_TRUE(many.values.count(name)) << name;
    EXPECT_EQ(many.values.at(name), values) << name;
  }
}

TEST(OverPipeline, SchedulesGiveTheBitsOfOneRank) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check_bits({.model = untied_llama(), .accumulation = 4, .schedule = schedule}, {{"pipeline", 2}});
  check_bits({.model = untied_llama(), .accumulation = 4}, {{"pipeline", 4}});
}
TEST(OverPipeline, RecomputedActivationsGiveTheBitsOfOneRank) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check_bits({.model = untied_llama(),
                .accumulation = 4,
                .schedule = schedule,
                .remat = {{"**", trainer::RematPolicy::recompute}}},
               {{"pipeline", 2}});
}
TEST(OverPipeline, DocumentsGiveTheBitsOfOneRank) {
  check_bits({.model = untied_llama(), .accumulation = 4, .documents = true}, {{"pipeline", 4}});
}
TEST(OverPipeline, DropoutGivesTheBitsOfOneRank) {
  const auto model = with(untied_llama(), "decoder.stack.layer.attention.dropout", "0.2");
  for (const trainer::ScheduleKind schedule : kSchedules)
    check_bits({.model = model, .accumulation = 4, .schedule = schedule}, {{"pipeline", 2}});
}
TEST(OverPipeline, TiedEmbeddingsAreEqualToOneRank) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check({.model = deep(tiny_gpt2()),
           .learner = learner<trainer::Sgd::Config>(),
           .accumulation = 4,
           .schedule = schedule},
          kLosses, {{{"pipeline", 2}}, {{"pipeline", 2}, {"fsdp", 2}}, {{"pipeline", 2}, {"data", 2}}});
}
TEST(OverPipeline, RowsAndStatesAreDividedAsWell) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check({.model = untied_llama(), .accumulation = 4, .schedule = schedule}, kMagnified,
          {{{"pipeline", 2}, {"data", 2}},
           {{"pipeline", 2}, {"fsdp", 2}},
           {{"pipeline", 2}, {"data", 2}, {"fsdp", 2}}});
}
TEST(OverPipeline, ExpertsGiveTheBitsOfOneRank) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check_bits({.model = of_experts(untied_llama()), .accumulation = 4, .schedule = schedule},
               {{"pipeline", 2}});
}
TEST(OverPipeline, EncodersAreEqualToOneRank) {
  const auto model = layers::encoder_decoder_config(
      {.vocab = 19, .dim = 16, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 24, .tied = true});
  for (const trainer::ScheduleKind schedule : kSchedules)
    check({.model = model,
           .learner = learner<trainer::Sgd::Config>(),
           .accumulation = 4,
           .schedule = schedule,
           .source = 5},
          kLosses, {{{"pipeline", 2}}});
  check({.model = model, .learner = learner<trainer::Sgd::Config>(), .accumulation = 4, .source = 5}, kLosses,
        {{{"pipeline", 4}}, {{"pipeline", 2}, {"fsdp", 2}}});
}
TEST(OverPipeline, LowPrecisionIsEqualToOneRank) {
  check_bits({.model = untied_llama(), .accumulation = 4, .dtype = kernels::DType::bf16}, {{"pipeline", 2}});
  check_bits({.model = untied_llama(), .accumulation = 4, .dtype = kernels::DType::f16}, {{"pipeline", 2}});
}

// A backward pass on what another micro-batch kept changes the result.
TEST(OverPipeline, AStaleStashIsSeen) {
  const auto swap_slots = [](Plan& plan) {
    if (plan.mesh.rank() > 0) return;  // both ranks alike would only add in another order
    for (trainer::StepAction& action : plan.steps.schedule)
      if (action.kind == trainer::StepAction::Kind::run && action.step == trainer::Step::backward &&
          action.slot < 2)
        action.slot = 1 - action.slot;
  };
  const Job job{.model = untied_llama(), .accumulation = 4, .schedule = trainer::ScheduleKind::gpipe};
  Job faulty = job;
  faulty.fault = swap_slots;
  const Outcome one = run(job, {}), many = run(faulty, {{"pipeline", 2}});
  double most = 0;
  for (const auto& [name, values] : one.values)
    if (name.starts_with("optimizer/m/")) most = std::max(most, difference(many.values.at(name), values));
  EXPECT_GT(most, 10 * kMagnified);
}

TEST(OverPipeline, MemoryIsThatOfTheSlotsInFlight) {
  const auto bytes = [](trainer::ScheduleKind schedule, int rank) {
    trainer::ComposeOptions options =
        options_of({.accumulation = 8, .schedule = schedule}, {{"pipeline", 2}}, rank);
    const auto device = build().registry.open("cpu");
    const Plan plan = trainer::compose_training(untied_llama(), adamw(), options, catalog(), device->info());
    std::int64_t stash = 0;
    for (const auto& [name, type] : plan.persistent_types)
      if (name.starts_with("stash/")) stash += type.bytes();
    return stash;
  };
  const std::int64_t one = bytes(trainer::ScheduleKind::one_f_one_b, 1);
  EXPECT_EQ(bytes(trainer::ScheduleKind::gpipe, 1), 8 * one);
  EXPECT_EQ(bytes(trainer::ScheduleKind::gpipe, 0), 4 * bytes(trainer::ScheduleKind::one_f_one_b, 0));
}

TEST(OverPipeline, DividedExpertsAreEqualToOneRank) {
  check({.model = of_four_experts(untied_llama()),
         .learner = learner<trainer::Sgd::Config>(),
         .accumulation = 4},
        kLosses, {{{"pipeline", 2}, {"expert", 2}}, {{"pipeline", 2}, {"data", 2}, {"expert", 2}}});
}

}  // namespace
}  // namespace meshloom::tests
