// A driver that accepts work and does not do it: the run says so, names the device, opens it again and does the work.
#include <gtest/gtest.h>

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

TEST_P(DroppedWork, IsSaidAndDoneAgain) {
  const Dropped& drop = GetParam();
  const Scratch scratch;
  scratch.file("text", sample_text(8000));
  const auto train = [&](const std::string& name, const std::string& before) {
    return meshloom(
        std::string("train tiny --sample 0 --quiet --set sequence=16 --set batch=2 ") +
            "--set model.decoder.stack.num_layers=1 --set checkpoint_every=2 --steps 8 --device " +
            drop.device + " --data " + scratch.path("text") + " --out " + scratch.path(name) + " " +
            drop.more,
        before);
  };
  const Outcome whole = train("whole", "");
  if (whole.err.find("needs a device") != std::string::npos ||
      whole.err.find("must be one of") != std::string::npos)
    GTEST_SKIP() << whole.err;
  const Outcome outcome =
      train("run", with_faults(std::string(drop.call) + " - " + std::to_string(drop.number) + " 1 0"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.errors().empty()) << outcome.err;
  EXPECT_NE(outcome.err.find(std::string("note: the device was lost (") + drop.device + ":0"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("must have run"), std::string::npos) << outcome.err;
  EXPECT_EQ(losses(scratch.path("run")), losses(scratch.path("whole")));
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
    EXPECT_TRUE(read_text(trainer::checkpoint_path(scratch.path("run"), 8) + file) ==
                read_text(trainer::checkpoint_path(scratch.path("whole"), 8) + file))
        << file;
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
