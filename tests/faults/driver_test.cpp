// Drivers whose calls fail, do nothing or lose the device: the run goes on to the same bits where the device can be opened
// again, and else ends with a one-line error and saves nothing wrong.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "tests/faults/small_run.h"
#include "tests/faults/support.h"

namespace meshloom::tests {
namespace {

struct DriverFault {
  const char* function;
  std::vector<int> codes;  // of cl.h and vulkan_core.h
};

struct Driver {
  const char* device;
  std::vector<DriverFault> faults;
  std::vector<const char*> submissions;  // the functions that hand work over
  std::vector<DriverFault> losses;       // how this driver says that the device is lost
};

const Driver kVulkan{"vulkan",
                     {{"vkQueueSubmit", {-4, -1}},  // device lost, out of host memory
                      {"vkWaitSemaphores", {-4, -2}},
                      {"vkCreateBuffer", {-2, -1}},
                      {"vkAllocateMemory", {-2, -10}},  // out of device memory, too many objects
                      {"vkBindBufferMemory", {-2}},
                      {"vkCreateShaderModule", {-1}},
                      {"vkCreateComputePipelines", {-1, -3}},  // initialization failed
                      {"vkEndCommandBuffer", {-1}}},
                     {"vkQueueSubmit", "vkCmdDispatch"},
                     {{"vkQueueSubmit", {-4, 1}}, {"vkWaitSemaphores", {-4}}}};  // 1: it never ends
const Driver kOpenCl{
    "opencl",
    {{"clEnqueueNDRangeKernel", {-4, -5}},  // no memory for the object, out of resources
     {"clFinish", {-5, -36}},               // invalid command queue
     {"clEnqueueReadBuffer", {-5, -14}},    // error of an event in the list
     {"clEnqueueWriteBuffer", {-5}},
     {"clBuildProgram", {-11, -6}},  // build failure, out of host memory
     {"clSetKernelArg", {-49}},
     {"clCreateBuffer", {-4, -61}},  // invalid size
     {"clCreateKernel", {-46}}},
    {"clEnqueueNDRangeKernel"},
    // invalid command queue, out of resources
    {{"clEnqueueNDRangeKernel", {-36, 2}}, {"clEnqueueReadBuffer", {-5}}}};  // 2: it never ends

class DriverCalls : public testing::TestWithParam<Driver> {
 protected:
  void SetUp() override {
#ifdef MESHLOOM_SANITIZED
    GTEST_SKIP() << "a sanitizer's library must be the first that is loaded";
#endif
    if (const std::string reason = run_.train_whole(); !reason.empty()) GTEST_SKIP() << reason;
    const std::string counts = run_.folder("counts");
    const Outcome outcome =
        meshloom(run_.arguments("counted"), with_faults("") + " MESHLOOM_FAULTS_COUNTS=" + counts);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    run_.expect_same("counted", "only counted");
    calls_ = counts_of(counts);
  }

  static std::map<std::string, int> counts_of(const std::string& file) {
    std::istringstream text(read_text(file));
    std::map<std::string, int> counts;
    std::string name;
    for (int count = 0; text >> name >> count;) counts[name] = count;
    return counts;
  }

  // Runs with one call changed. The run ends in one line and all that is saved is right, or it goes on to the same bits.
  // Returns whether anything was said.
  bool said(const std::string& function, int at, int code) {
    run_.clear("broken");
    const std::string fault = function + " - " + std::to_string(at + 1) + " 1 " + std::to_string(code);
    const std::string counts = run_.folder("counts-of-broken");
    const Outcome outcome =
        meshloom(run_.arguments("broken"),
                 with_faults(fault) + " MESHLOOM_WAIT_SECONDS=2 MESHLOOM_FAULTS_COUNTS=" + counts);
    if (outcome.code == 0) {
      run_.expect_same("broken", fault);
      made_ = counts_of(counts)[function];
      const bool opened_again = outcome.err.find("the device was lost") != std::string::npos;
      recovered_ += opened_again;
      return opened_again;
    }
    EXPECT_TRUE(outcome.code == 1 || outcome.code == 3) << fault << ": " << outcome.code;
    EXPECT_EQ(outcome.errors().size(), 1u) << fault << "\n" << outcome.err;
    run_.expect_resumed("broken", fault);
    return true;
  }

  SmallRun run_{GetParam().device};
  int recovered_ = 0;  // runs that opened their device again
  // Calls of the last run. It may have more or fewer than another one, because where a list is cut depends on what was measured.
  int made_ = 0;
  std::map<std::string, int> calls_;
};

TEST_P(DriverCalls, ThatFailAreSaid) {
  int tried = 0, ended = 0;
  for (const DriverFault& fault : GetParam().faults) {
    const int count = calls_[fault.function];
    if (count == 0) continue;  // such as a compiler's when everything was in the cache
    std::set<int> points{0, 1, count / 2, count - 1};
    if (!all_faults()) points = {count / 2};
    for (const int at : points)
      for (const int code : fault.codes) {
        if (at >= count || (!all_faults() && code != fault.codes.front())) continue;
        ended += said(fault.function, at, code);
        ++tried;
        if (HasFailure()) FAIL();
      }
  }
  EXPECT_GT(ended, 0);
  std::printf("%s: %d failing calls, %d ended in one line, %d changed nothing\n", GetParam().device, tried,
              ended, tried - ended);
}

// A driver that says yes and does not do the work.
TEST_P(DriverCalls, ThatDoNothingAreSaid) {
  for (const std::string function : GetParam().submissions) {
    const int count = calls_[function];
    ASSERT_GT(count, 0) << function;
    int tried = 0;
    for (const int at : chosen_points(count, 3)) {
      if (all_faults() && count > 60 && at % (count / 60) != 0) continue;
      EXPECT_TRUE(said(function, at, 0)) << "call " << at << " of " << function << " was dropped in silence";
      ++tried;
      if (HasFailure()) FAIL();
    }
    std::printf("%s: %d calls of %s dropped, all said\n", GetParam().device, tried, function.c_str());
  }
  std::printf("%s: %d runs went on\n", GetParam().device, recovered_);
}

// Of every loss while it trains a run recovers; the calls after its end are another matter.
TEST_P(DriverCalls, ThatLoseTheDeviceAreRecoveredFrom) {
  int tried = 0, silent = 0, unreached = 0;
  const int points = all_faults() ? 20 : 4;
  for (const DriverFault& loss : GetParam().losses)
    for (const int code : loss.codes) {
      const int count = calls_[loss.function];
      ASSERT_GT(count, 0) << loss.function;
      for (int i = 0; i < points; ++i) {
        const int at = static_cast<int>((2L * i + 1) * count / (2L * points));
        const bool answered = said(loss.function, at, code);
        EXPECT_EQ(run_.newest_step("broken"), SmallRun::kSteps) << loss.function << " at " << at;
        if (!answered) {
          ++silent;
          unreached += made_ <= at;
        }
        ++tried;
        if (HasFailure()) FAIL() << loss.function << " at " << at << " with " << code;
      }
    }
  EXPECT_EQ(recovered_ + silent, tried);
  // Nobody needs the result of some calls, such as the wait for a list that is destroyed, and the bits are the same without.
  EXPECT_GE(recovered_, tried / 2);
  std::printf("%s: device lost at %d calls, %d runs went on, %d did not notice, %d ended before\n",
              GetParam().device, tried, recovered_, silent - unreached, unreached);
}

INSTANTIATE_TEST_SUITE_P(Of, DriverCalls, testing::Values(kVulkan, kOpenCl),
                         [](const auto& info) { return std::string(info.param.device); });

}  // namespace
}  // namespace meshloom::tests
