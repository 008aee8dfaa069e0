// scripts/check-gpu, on a driver that computes on the processor: the page is tested, not the times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/run/binary.h"

namespace meshloom::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CheckGpu : public ::testing::Test {
 protected:
  static tests::Outcome run(const std::string& arguments) {
    return tests::shell("cd " MESHLOOM_SOURCE_DIR " && scripts/check-gpu --program " MESHLOOM_BINARY " " +
                        arguments);
  }
  const tests::Scratch scratch_;
};

TEST_F(CheckGpu, WritesAPageOfItsParts) {
  const std::string devices = tests::meshloom("devices --no-test").out;
  const std::string device = devices.find("vulkan:0") != std::string::npos ? "vulkan:0" : "opencl:0";
  if (devices.find(device) == std::string::npos) GTEST_SKIP() << "no driver of Vulkan or OpenCL is installed";
  const std::string calls = scratch_.file(
      "calls",
      "# some\nmatmul f32 16x16x16\nmatmul f32 16x16x32:tb\nnf4_matmul f32(4, 64), u8(64, 32), f32(64, 1) "
      "{block=64, columns=64}\n");
  const std::string page = scratch_.path("page.md");
  const tests::Outcome done = run("--parts device,steps,kernels --recipes tiny --calls " + calls +
                                  " --output " + page + " " + device);
  EXPECT_EQ(done.code, 0) << done.out << done.err;
  EXPECT_THAT(done.out, HasSubstr("none of the commands failed"));
  const std::string text = tests::read_text(page);
  EXPECT_THAT(text, HasSubstr(" by " + device + ", "));
  EXPECT_THAT(text, HasSubstr("  self-test  matmul"));
  EXPECT_THAT(text, HasSubstr("bench train_step tiny --device " + device));
  EXPECT_THAT(text, HasSubstr("\nwhole step   "));
  EXPECT_THAT(text, HasSubstr("--shapes '16x16x16;16x16x32:tb'"))
      << "calls of one op and dtype are one table";
  EXPECT_THAT(text, HasSubstr("### nf4_matmul\n"));
  EXPECT_THAT(text, Not(HasSubstr("Exit code")));

  // A call that the op refuses is a failure, which the page has.
  const tests::Outcome failed = run("--parts kernels --calls " + scratch_.file("bad", "matmul f32 16x16\n") +
                                    " --output " + page + " " + device);
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out, HasSubstr("1 of the commands failed"));
  EXPECT_THAT(tests::read_text(page), HasSubstr("Exit code"));
}

TEST_F(CheckGpu, RefusesWhatItDoesNotKnow) {
  for (const auto& [arguments, message] :
       {std::pair{"--parts step",
                  "a part must be one of device steps settings kernels decode train tests; found 'step'"},
        {"vulkan:77", "a device must be one that `meshloom devices` lists; found 'vulkan:77'"},
        {"gpu", "an argument must be a device such as vulkan:0, or an option (see --help); found 'gpu'"},
        {"--recipes", "--recipes must be followed by a value; found nothing"},
        {"--calls /nonexistent", "--calls must be a file that can be read; found '/nonexistent'"},
        {"--output /nonexistent/page.md vulkan:77", "a device must be"}}) {
    const tests::Outcome refused = run(arguments);
    EXPECT_EQ(refused.code, 2) << arguments;
    EXPECT_THAT(refused.err, HasSubstr(std::string("scripts/check-gpu: ") + message)) << arguments;
    EXPECT_THAT(refused.out, IsEmpty()) << arguments;
  }
}

}  // namespace
}  // namespace meshloom::bench
