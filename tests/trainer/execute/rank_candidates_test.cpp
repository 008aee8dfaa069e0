// The order in which candidates are tried, of inspections made by hand.
#include <gtest/gtest.h>

#include "trainer/execute/rank_candidates.h"

namespace meshloom::tests {
namespace {

using trainer::InspectedCall;
using trainer::InspectedPipeline;

// Of 100 cycles of its main loop so many multiply.
InspectedPipeline pipeline(double multiply, std::uint32_t groups) {
  InspectedPipeline made;
  made.spec.workgroup = {64, 1, 1};
  made.groups = {groups, 1, 1};
  made.dispatches = 1;
  hal::LoopInspection loop;
  loop.main = loop.product = true;
  loop.issue_cycles = 100;
  loop.multiply_cycles = multiply;
  made.found.loops = {loop};
  made.found.waves = 4;
  return made;
}

InspectedCall call(const std::vector<InspectedPipeline>& pipelines) {
  InspectedCall made;
  made.pipelines = pipelines;
  return made;
}

// Of ten multiprocessors.
double in_turn(const std::vector<InspectedPipeline>& pipelines) {
  return multiplying_share(call(pipelines), 10).in_turn;
}

TEST(RankCandidates, TheShareIsThatOfTheMainLoop) {
  EXPECT_DOUBLE_EQ(in_turn({pipeline(80, 100)}), 0.8);
  InspectedPipeline bound = pipeline(80, 100);
  bound.found.loops[0].local_cycles = 160;
  EXPECT_DOUBLE_EQ(in_turn({bound}), 80.0 / (100 + 160))
      << "local memory works in turn with the instructions";
  EXPECT_DOUBLE_EQ(multiplying_share(call({bound}), 10).overlapped, 0.5);
  InspectedPipeline alone = pipeline(80, 100);
  alone.found.waves = 1;
  EXPECT_DOUBLE_EQ(in_turn({alone}), 0.4);
  EXPECT_DOUBLE_EQ(in_turn({pipeline(0, 100)}), 0);
  EXPECT_DOUBLE_EQ(in_turn({}), 0);
}

TEST(RankCandidates, CoresThatAreLeftOutCount) {
  EXPECT_DOUBLE_EQ(in_turn({pipeline(80, 11)}), 0.8 * 11 / 20);
  EXPECT_DOUBLE_EQ(in_turn({pipeline(80, 5)}), 0.4);
  EXPECT_DOUBLE_EQ(multiplying_share(call({pipeline(80, 5)}), 0).in_turn, 0.8) << "of unknown cores";
}

// Both do the same work, one at half the rate.
TEST(RankCandidates, PipelinesCountByWhatTheyMultiply) {
  InspectedPipeline slow = pipeline(40, 200);
  EXPECT_NEAR(in_turn({pipeline(80, 100), slow}), 2 / (1 / 0.8 + 1 / 0.4), 1e-12);
}

// The second kernel of a product in parts: its loop has one turn per part, that of the product one per step of K.
TEST(RankCandidates, KernelsThatHardlyMultiplyDoNotCount) {
  EXPECT_DOUBLE_EQ(in_turn({pipeline(80, 100), pipeline(2, 1000)}), 0.8);
  EXPECT_DOUBLE_EQ(in_turn({pipeline(2, 100)}), 0.02) << "but where it is all there is";
}

TEST(RankCandidates, RegistersInMemoryAreSeen) {
  EXPECT_FALSE(keeps_registers_in_memory(call({pipeline(80, 100)})));
  InspectedPipeline spills = pipeline(80, 100);
  spills.found.spilled = 2;
  EXPECT_TRUE(keeps_registers_in_memory(call({pipeline(80, 100), spills})));
  InspectedPipeline arrays = pipeline(80, 100);
  arrays.found.scratch_bytes = 64;
  EXPECT_TRUE(keeps_registers_in_memory(call({arrays})));
}

}  // namespace
}  // namespace meshloom::tests
