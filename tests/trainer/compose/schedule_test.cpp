// The orders in which the stages of a pipeline compute.
#include "trainer/compose/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/message_of.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::ScheduleKind;
using trainer::Step;
using trainer::StepAction;
using Actions = std::vector<std::vector<StepAction>>;

Actions actions_of(ScheduleKind kind, int stages, int chunks, int micro_batches) {
  Actions all;
  for (int stage = 0; stage < stages; ++stage)
    all.push_back(trainer::pipeline_actions(kind, stage, stages, chunks, micro_batches));
  return all;
}

struct Shape {
  ScheduleKind kind;
  int stages, chunks, micro_batches;
};

Shape random_shape(std::mt19937& random) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  Shape shape{static_cast<ScheduleKind>(draw(0, 3)), draw(2, 6), 1, 0};
  if (shape.kind == ScheduleKind::interleaved) shape.chunks = draw(2, 4);
  shape.micro_batches =
      shape.kind == ScheduleKind::interleaved ? shape.stages * draw(1, 4) : shape.stages + draw(0, 9);
  return shape;
}

TEST(Schedule, ActionsOfRandomShapesFitTogether) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const auto [kind, stages, chunks, micro_batches] = random_shape(random);
    SCOPED_TRACE(std::string(to_string(kind)) + " " + std::to_string(stages) + " stages, " +
                 std::to_string(chunks) + " chunks, " + std::to_string(micro_batches) + " micro-batches");
    const auto slots = check_actions(actions_of(kind, stages, chunks, micro_batches), chunks, micro_batches);
    for (int stage = 0; stage < stages; ++stage) {
      const int most = slots[static_cast<std::size_t>(stage)][0];
      const int of_1f1b = std::min(stages - stage, micro_batches);
      EXPECT_LE(most, kind == ScheduleKind::zero_bubble ? stages : micro_batches);
      if (kind != ScheduleKind::interleaved) {
        EXPECT_GE(most, of_1f1b);
      }
      if (kind == ScheduleKind::gpipe) {
        EXPECT_EQ(most, micro_batches);
      }
      if (kind == ScheduleKind::one_f_one_b) {
        EXPECT_EQ(most, of_1f1b);
      }
    }
  }
}

// A list from which one action was taken, in which one was doubled, one was given another micro-batch, peer or slot, or two
// were swapped that must not be.
TEST(Schedule, PlantedFaultsAreFound) {
  std::mt19937 random(2);
  const auto pick = [&](std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  };
  int swaps = 0;
  for (int i = 0; i < 400; ++i) {
    const auto [kind, stages, chunks, micro_batches] = random_shape(random);
    Actions all = actions_of(kind, stages, chunks, micro_batches);
    std::vector<StepAction>& own = all[pick(all.size())];
    const std::size_t at = pick(own.size());
    const int fault = i % 6;
    SCOPED_TRACE("fault " + std::to_string(fault) + " at " + to_string(own[at]));
    switch (fault) {
      case 0:
        own.erase(own.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1:
        own.insert(own.begin() + static_cast<std::ptrdiff_t>(at), own[at]);
        break;
      case 2:
        own[at].micro_batch = (own[at].micro_batch + 1) % micro_batches;
        break;
      case 3:
        if (own[at].kind == StepAction::Kind::run) continue;
        own[at].peer = own[at].peer + stages;
        break;
      case 4:
        if (own[at].kind == StepAction::Kind::send) continue;  // from where it is does not matter to others
        own[at].slot += 100;
        break;
      case 5: {  // a run in front of the receive that it needs
        const auto found = std::find_if(own.begin() + 1, own.end(), [&](const StepAction& action) {
          return action.kind == StepAction::Kind::run && (&action - 1)->kind == StepAction::Kind::receive;
        });
        if (found == own.end()) continue;
        std::swap(*found, *(found - 1));
        ++swaps;
        break;
      }
      default:
        break;
    }
    EXPECT_THAT(message_of([&] { check_actions(all, chunks, micro_batches); }),
                HasSubstr("pipeline schedule"));
  }
  EXPECT_GT(swaps, 30);
}

TEST(Schedule, StagesThatWaitForEachOtherAreFound) {
  Actions all = actions_of(ScheduleKind::one_f_one_b, 2, 1, 2);
  // The first stage wants a gradient before it sends what that is made of.
  std::vector<StepAction>& first = all[0];
  const auto send = std::find_if(first.begin(), first.end(),
                                 [](const StepAction& a) { return a.kind == StepAction::Kind::send; });
  const auto receive = std::find_if(first.begin(), first.end(),
                                    [](const StepAction& a) { return a.kind == StepAction::Kind::receive; });
  ASSERT_LT(send, receive);
  std::rotate(send, receive, receive + 1);
  EXPECT_THAT(message_of([&] { check_actions(all, 1, 2); }), HasSubstr("waits for ever"));
}

TEST(Schedule, BubblesAreThoseOfTheLiterature) {
  const int stages = 4, micro_batches = 8;
  const auto bubble = [&](ScheduleKind kind, int chunks) {
    const Actions all = actions_of(kind, stages, chunks, micro_batches);
    return pipeline_time(all,
                         [&](int, const StepAction& run) {
                           // A whole backward takes twice a forward.
                           const double part = 1.0 / chunks;
                           return run.step == Step::backward && kind != ScheduleKind::zero_bubble ? 2 * part
                                                                                                  : part;
                         })
        .bubble();
  };
  // (p - 1) / (m + p - 1); with v chunks (p - 1) / (v m + p - 1); with weights apart (p - 1) / (3 m + p - 1).
  EXPECT_NEAR(bubble(ScheduleKind::gpipe, 1), 3.0 / 11, 1e-9);
  EXPECT_NEAR(bubble(ScheduleKind::one_f_one_b, 1), 3.0 / 11, 1e-9);
  EXPECT_NEAR(bubble(ScheduleKind::interleaved, 2), 3.0 / 19, 1e-9);
  EXPECT_NEAR(bubble(ScheduleKind::zero_bubble, 1), 3.0 / 27, 1e-9);
}

TEST(Schedule, ShapesThatCannotWorkAreRefused) {
  const auto refused = [](ScheduleKind kind, int stages, int chunks, int micro_batches) {
    return message_of([&] { trainer::pipeline_actions(kind, 0, stages, chunks, micro_batches); });
  };
  EXPECT_THAT(refused(ScheduleKind::one_f_one_b, 4, 1, 3),
              HasSubstr("a pipeline of 4 stages needs at least 4 micro-batches"));
  EXPECT_THAT(refused(ScheduleKind::one_f_one_b, 1, 1, 3), HasSubstr("at least 2 stages"));
  EXPECT_THAT(refused(ScheduleKind::gpipe, 2, 2, 4), HasSubstr("one chunk of layers a stage"));
  EXPECT_THAT(refused(ScheduleKind::interleaved, 2, 1, 4), HasSubstr("at least 2 chunks"));
  EXPECT_THAT(refused(ScheduleKind::interleaved, 4, 2, 6), HasSubstr("a multiple of the 4 stages"));
  EXPECT_THAT(message_of([] { trainer::schedule_kind_from_string("1f1p"); }),
              HasSubstr("did you mean '1f1b'"));
}

}  // namespace
}  // namespace meshloom::tests
