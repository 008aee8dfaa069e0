// Which commands stand between the same barriers. That kernels compute there what they do alone: tests/kernels/reordered_dispatches_test.cpp.
#include "trainer/execute/list_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hal/null_command_list.h"

namespace meshloom::tests {
namespace {

using hal::Access;
using hal::Binding;
using testing::ElementsAre;
using trainer::ListScheduler;
using trainer::PlannedBuffer;
using trainer::PlannedDevice;

// Notes the kernel of every dispatch, "copy", "fill", "call", "mark", and "|" for a barrier.
class BarrierNotes : public hal::NullCommandList {
 public:
  void dispatch(const std::shared_ptr<hal::Executable>& executable, std::array<std::uint32_t, 3>,
                std::span<const Binding>, std::span<const hal::Word>, const std::string&) override {
    add(executable->spec().kernel);
  }
  void copy(const Binding&, const Binding&, const std::string&) override { add("copy"); }
  void fill(const Binding&, hal::Word, const std::string&) override { add("fill"); }
  void host_call(hal::HostFunction, std::span<const Binding>, const std::string&) override { add("call"); }
  void barrier() override { add("|"); }
  int mark() override {
    add("mark");
    return 0;
  }
  void predict(double seconds) override { predicted.push_back(seconds); }

  std::string text;
  std::vector<double> predicted;

 private:
  void add(const std::string& what) { text += (text.empty() ? "" : " ") + what; }
};

class Scheduling : public testing::Test {
 protected:
  Binding bytes(std::int64_t at, Access access) { return {&memory_, at, 16, access}; }
  void run(const std::string& kernel, std::int64_t from, std::int64_t to, std::uint32_t groups = 1) {
    const hal::ExecutableSpec spec{kernel, {}, {64, 1, 1}, {Access::read, Access::write}, 0};
    scheduler_.dispatch(scheduler_.device().load(spec), {groups, 1, 1},
                        std::vector<Binding>{bytes(from, Access::read), bytes(to, Access::write)}, {},
                        kernel);
  }
  const std::string& order() {
    scheduler_.finish();
    return into_.text;
  }

  PlannedDevice device_{hal::DeviceInfo{}};
  PlannedBuffer memory_{1 << 20, "memory"};
  BarrierNotes into_;
  ListScheduler scheduler_{device_, into_};
};

TEST_F(Scheduling, WhatWaitsForNothingComesBesideWhatIsBeforeIt) {
  run("a", 0, 100);
  run("b", 100, 200);
  run("c", 20, 300);
  run("d", 300, 400);
  run("e", 400, 500);
  EXPECT_EQ(order(), "a c | b d | e");
}

TEST_F(Scheduling, BarriersOfTheCallerDoNotCount) {
  run("a", 0, 100);
  scheduler_.barrier();
  run("b", 20, 200);
  EXPECT_EQ(order(), "a b");
}

TEST_F(Scheduling, WhatOverwritesStaysBehindReadersAndWriters) {
  run("reader", 0, 100);
  run("writer", 200, 0);
  run("writes-again", 300, 8);
  run("beside", 400, 500);
  EXPECT_EQ(order(), "reader beside | writer | writes-again");
}

TEST_F(Scheduling, CommandsBehindOneThatWaitsDoNotPassWhatTheyWaitFor) {
  run("a", 0, 100);
  run("b", 100, 200);
  run("c", 200, 300);
  run("d", 400, 200);  // overwrites what c reads
  EXPECT_EQ(order(), "a | b | c | d");
}

TEST_F(Scheduling, NonePassesAMarkOrACallOfTheHost) {
  run("a", 0, 100);
  EXPECT_EQ(scheduler_.mark(), 0);
  run("b", 0, 200);
  scheduler_.host_call([](std::span<const hal::HostRange>) {}, {}, "call");
  run("c", 0, 300);
  run("d", 0, 400);
  EXPECT_EQ(order(), "a mark b call c d");
}

TEST_F(Scheduling, BehindAMarkABarrierComesWhereACommandWaits) {
  run("a", 0, 100);
  scheduler_.mark();
  run("b", 20, 200);
  scheduler_.mark();
  run("c", 100, 300);
  EXPECT_EQ(order(), "a mark b mark | c");
}

TEST_F(Scheduling, CopiesAndFillsKeepWhatTheyTouchInOrder) {
  run("a", 0, 100);
  scheduler_.copy(bytes(100, Access::read), bytes(200, Access::write), "copy");
  scheduler_.fill(bytes(300, Access::write), hal::word(std::int64_t{0}), "fill");
  run("b", 200, 400);
  EXPECT_EQ(order(), "a fill | copy | b");
}

// A chain of 70 that waits, and one behind it that does not.
TEST_F(Scheduling, NoneComesLongBeforeItsPlace) {
  for (int i = 0; i < 70; ++i) run("a", 20 * i, 20 * (i + 1));
  run("z", 3000, 4000);
  const std::string text = order();
  EXPECT_EQ(text.substr(0, 16), "a | a | a | a | ");
  EXPECT_THAT(text, testing::HasSubstr("a z | a"));
}

TEST_F(Scheduling, EachIsPredictedAsItWas) {
  scheduler_.predict(1);
  run("a", 0, 100);
  scheduler_.predict(2);
  run("b", 100, 200);
  scheduler_.predict(3);
  run("c", 20, 300);
  EXPECT_EQ(order(), "a c | b");
  EXPECT_THAT(into_.predicted, ElementsAre(1, 3, 2));
}

TEST(OverlapsDispatches, IsAFeatureOfTheDevice) {
  hal::DeviceInfo info;
  EXPECT_FALSE(trainer::overlaps_dispatches(info));
  info.features = {"overlapping-dispatches"};
  EXPECT_TRUE(trainer::overlaps_dispatches(info));
}

}  // namespace
}  // namespace meshloom::tests
