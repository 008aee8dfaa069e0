// A driver that accepts work and does not do it: the run ends with an error and saves nothing afterwards.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/faults/support.h"
#include "trainer/checkpoint/checkpoint.h"

namespace meshloom::tests {
namespace {

struct Dropped {
  const char *device, *call;
  int number;        // of the call that does nothing
  const char* more;  // options of the run
};

class DroppedWork : public testing::TestWithParam<Dropped> {};

TEST_P(DroppedWork, IsAnErrorThatNamesTheDevice) {
  const Dropped& drop = GetParam();
  const Scratch scratch;
  scratch.file("text", sample_text(8000));
  const std::string run = scratch.path("run");
  const std::string train =
      std::string("train tiny --sample 0 --quiet --set sequence=16 --set batch=2 ") +
      "--set model.decoder.stack.num_layers=1 --set checkpoint_every=2 --steps 8 --device " + drop.device +
      " --data " + scratch.path("text") + " --out " + run + " " + drop.more;
  const Outcome outcome =
      meshloom(train, with_faults(std::string(drop.call) + " - " + std::to_string(drop.number) + " 1 0"));
  if (outcome.err.find("needs a device") != std::string::npos ||
      outcome.err.find("must be one of") != std::string::npos)
    GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.err;
  EXPECT_NE(outcome.errors()[0].find(std::string("meshloom: ") + drop.device + ":0"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.errors()[0].find("must have run"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(trainer::checkpoint_path(run, 8)));
  // What was saved before is as good as that of a run without faults.
  for (std::int64_t step : {2, 4, 6})
    if (std::filesystem::exists(trainer::checkpoint_path(run, step) + "/manifest.json")) {
      EXPECT_EQ(meshloom("generate --device cpu --tokens 1 --prompt x --checkpoint " +
                         trainer::checkpoint_path(run, step))
                    .code,
                0);
    }
}

// Steps, micro-batches, updates and evaluations, at the beginning and later.
INSTANTIATE_TEST_SUITE_P(
    All, DroppedWork,
    testing::Values(Dropped{"vulkan", "vkQueueSubmit", 1, "--set eval_batches=0"},
                    Dropped{"vulkan", "vkQueueSubmit", 5, "--set eval_batches=0"},
                    Dropped{"vulkan", "vkQueueSubmit", 5, "--set eval_batches=0 --set accumulation=2"},
                    Dropped{"vulkan", "vkQueueSubmit", 6, "--set eval_batches=0 --set accumulation=2"},
                    Dropped{"vulkan", "vkQueueSubmit", 3, "--set eval_every=2 --set eval_batches=1"},
                    Dropped{"opencl", "clEnqueueNDRangeKernel", 1, "--set eval_batches=0"},
                    Dropped{"opencl", "clEnqueueNDRangeKernel", 77, "--set eval_batches=0"},
                    Dropped{"opencl", "clEnqueueNDRangeKernel", 200,
                            "--set eval_batches=1 --set eval_every=1"}),
    [](const auto& info) { return std::string(info.param.device) + std::to_string(info.index); });

}  // namespace
}  // namespace meshloom::tests
