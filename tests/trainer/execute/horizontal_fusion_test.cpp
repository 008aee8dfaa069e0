// Which dispatches may share a launch. That each computes there what it does alone: tests/kernels/reordered_dispatches_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hal/null_command_list.h"
#include "trainer/execute/horizontal_fusion.h"

namespace meshloom::tests {
namespace {

using hal::Access;
using hal::Binding;
using testing::ElementsAre;
using trainer::HorizontalFusion;
using trainer::PlannedBuffer;
using trainer::PlannedDevice;

// Notes "KERNEL*DISPATCHES GROUPS" of every launch, and "mark", "call", "copy" and "fill".
class Notes : public hal::NullCommandList {
 public:
  void dispatch(const std::shared_ptr<hal::Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const Binding> bindings, std::span<const hal::Word> constants,
                const std::string& label) override {
    const hal::ExecutableSpec& spec = executable->spec();
    EXPECT_EQ(bindings.size(), spec.bindings.size());
    EXPECT_EQ(constants.size(), spec.constant_words);
    text.push_back(spec.kernel + (spec.fused > 1 ? "*" + std::to_string(spec.fused) : "") + " " +
                   std::to_string(groups[0] * groups[1] * groups[2]));
    labels.push_back(label);
    words.assign(constants.begin(), constants.end());
  }
  void copy(const Binding&, const Binding&, const std::string&) override { text.emplace_back("copy"); }
  void fill(const Binding&, hal::Word, const std::string&) override { text.emplace_back("fill"); }
  void host_call(hal::HostFunction, std::span<const Binding>, const std::string&) override {
    text.emplace_back("call");
  }
  int mark() override {
    text.emplace_back("mark");
    return 0;
  }

  std::vector<std::string> text, labels;
  std::vector<hal::Word> words;
};

class Fusing : public testing::Test {
 protected:
  static hal::DeviceInfo info() {
    hal::DeviceInfo info;
    info.id = "opencl:0";
    info.backend = "opencl";
    info.limits.max_parameter_bytes = 4352;
    return info;
  }

  Binding bytes(std::int64_t at, Access access) { return {&memory_, at, 16, access}; }
  void run(const std::string& kernel, std::int64_t from, std::int64_t to, std::uint32_t groups = 1) {
    const hal::ExecutableSpec spec{kernel, {}, {64, 1, 1}, {Access::read, Access::write}, 1};
    fusion_.dispatch(fusion_.device().load(spec), {groups, 1, 1},
                     std::vector<Binding>{bytes(from, Access::read), bytes(to, Access::write)},
                     std::vector<hal::Word>{hal::word(from)}, kernel + " to " + std::to_string(to));
  }
  const std::vector<std::string>& launches() {
    fusion_.finish();
    return into_.text;
  }

  PlannedDevice device_{info()};
  PlannedBuffer memory_{1 << 20, "memory"};
  Notes into_;
  HorizontalFusion fusion_{device_, into_};
};

TEST_F(Fusing, DispatchesOfOneKernelThatAreIndependentShareALaunch) {
  run("cast", 0, 100, 3);
  run("product", 100, 200);  // reads what the first cast wrote
  run("cast", 20, 120, 4);
  run("product", 120, 220, 2);
  EXPECT_THAT(launches(), ElementsAre("cast*2 7", "product*2 3"));
  EXPECT_THAT(into_.labels, ElementsAre("cast to 100 and 1 more", "product to 200 and 1 more"));
  // Of each its constant, its first workgroup, and its workgroups along x, y and z.
  std::vector<int> words;
  for (const hal::Word word : into_.words) words.push_back(word.i);
  EXPECT_THAT(words, ElementsAre(100, 0, 1, 1, 1, 120, 1, 2, 1, 1));
}

TEST_F(Fusing, AThirdOfFourHasNoWorkgroups) {
  for (int i = 0; i < 3; ++i) run("cast", 20 * i, 200 + 20 * i);
  EXPECT_THAT(launches(), ElementsAre("cast*4 3"));
  EXPECT_EQ(into_.words[3 * 5 + 1].i, INT32_MAX);
}

TEST_F(Fusing, ADispatchWaitsForOthersOfItsKernelUntilItsResultIsRead) {
  run("product", 0, 100);
  run("cast", 400, 420);
  run("product", 420, 120);  // reads what the cast wrote
  run("norm", 100, 200);
  run("product", 20, 140);
  EXPECT_THAT(launches(), ElementsAre("cast 1", "product*4 3", "norm 1"));
}

TEST_F(Fusing, MoreThanEightAreSeveralLaunches) {
  for (int i = 0; i < 11; ++i) run("cast", 0, 200 + 20 * i);
  EXPECT_THAT(launches(), ElementsAre("cast*8 8", "cast*4 3"));
}

TEST_F(Fusing, WhatReadsAResultStaysBehindIt) {
  run("add", 0, 100);
  run("add", 100, 200);
  EXPECT_THAT(launches(), ElementsAre("add 1", "add 1"));
}

TEST_F(Fusing, WhatOverwritesAnInputStaysBehindItsReader) {
  run("add", 0, 100);
  run("scale", 300, 400);
  run("add", 500, 300);  // which scale reads
  EXPECT_THAT(launches(), ElementsAre("scale 1", "add*2 2"));
}

TEST_F(Fusing, WhatWritesTheSameBytesStaysBehind) {
  run("add", 0, 100);
  run("add", 40, 108);
  EXPECT_THAT(launches(), ElementsAre("add 1", "add 1"));
}

TEST_F(Fusing, NonePassesAMarkOrACallOfTheHost) {
  run("add", 0, 100);
  EXPECT_EQ(fusion_.mark(), 0);
  run("add", 0, 200);
  fusion_.host_call([](std::span<const hal::HostRange>) {}, {}, "call");
  run("add", 0, 300);
  EXPECT_THAT(launches(), ElementsAre("add 1", "mark", "add 1", "call", "add 1"));
}

TEST_F(Fusing, CopiesAndFillsKeepWhatTheyTouchInOrder) {
  run("add", 0, 100);
  fusion_.copy(bytes(400, Access::read), bytes(500, Access::write), "copy");
  fusion_.fill(bytes(600, Access::write), hal::word(std::int64_t{0}), "fill");
  run("add", 500, 200);  // reads the copy
  run("add", 20, 300);
  run("add", 600, 320);  // reads the fill
  EXPECT_THAT(launches(), ElementsAre("copy", "fill", "add*4 4"));
}

TEST_F(Fusing, LargeDispatchesRunAlone) {
  run("add", 0, 100, 1 << 15);
  run("add", 0, 200, 1 << 15);
  EXPECT_THAT(launches(), ElementsAre("add 32768", "add 32768"));
}

TEST_F(Fusing, LaunchesHaveRoomForTheirArguments) {
  hal::DeviceInfo small = info();
  small.limits.max_parameter_bytes = 2 * (2 * 16 + 5 * 4) + 48;
  PlannedDevice device(small);
  HorizontalFusion fusion(device, into_);
  const hal::ExecutableSpec spec{"add", {}, {64, 1, 1}, {Access::read, Access::write}, 1};
  for (int i = 0; i < 4; ++i)
    fusion.dispatch(fusion.device().load(spec), {1, 1, 1},
                    std::vector<Binding>{bytes(0, Access::read), bytes(100 + 20 * i, Access::write)},
                    std::vector<hal::Word>(1), "add");
  fusion.finish();
  EXPECT_THAT(into_.text, ElementsAre("add*2 2", "add*2 2"));
}

// OpenCL's kernels have at most 255.
TEST_F(Fusing, LaunchesHaveNotTooManyArguments) {
  const hal::ExecutableSpec spec{"add", {}, {64, 1, 1}, std::vector<Access>(8, Access::read), 13};
  for (int i = 0; i < 8; ++i)
    fusion_.dispatch(fusion_.device().load(spec), {1, 1, 1},
                     std::vector<Binding>(8, bytes(20 * i, Access::read)), std::vector<hal::Word>(13), "add");
  EXPECT_THAT(launches(), ElementsAre("add*4 4", "add*4 4"));
}

TEST_F(Fusing, DevicesSayWhetherTheyTakeThem) {
  EXPECT_TRUE(trainer::fuses_dispatches(info()));
  EXPECT_FALSE(trainer::fuses_dispatches(hal::DeviceInfo{}));
  hal::DeviceInfo wrong = info();
  wrong.self_test_results[hal::kFusedLaunches] = "";
  EXPECT_TRUE(trainer::fuses_dispatches(wrong));
  wrong.self_test_results[hal::kFusedLaunches] = "element 0 is 1 instead of 2";
  EXPECT_FALSE(trainer::fuses_dispatches(wrong));
  hal::DeviceInfo processor = info();
  processor.is_cpu = true;
  EXPECT_FALSE(trainer::fuses_dispatches(processor));
}

}  // namespace
}  // namespace meshloom::tests
