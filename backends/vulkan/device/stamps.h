// Proofs that submissions ran to their end. A driver may drop or stop a submission and signal its semaphore nevertheless, so
// the last command of each is a kernel that counts in memory that the host reads.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/vulkan/device/context.h"
#include "backends/vulkan/device/memory.h"
#include "backends/vulkan/device/pipeline.h"

namespace meshloom::backends::vulkan {

class Stamps {
 public:
  // `counter` is the kernel count_submission.
  Stamps(std::shared_ptr<Context> context, std::shared_ptr<VkExecutable> counter)
      : context_(std::move(context)), counter_(std::move(counter)) {}
  ~Stamps();
  Stamps(const Stamps&) = delete;
  Stamps& operator=(const Stamps&) = delete;

  static hal::ExecutableSpec counter_spec();

  // Whether the driver counts exactly the invocations of a small dispatch (VK_QUERY_TYPE_PIPELINE_STATISTICS). Vulkan leaves
  // to drivers how they count.
  bool driver_counts_exactly();

  // A counter for one command buffer, which may be submitted any number of times.
  std::size_t take();
  void give_back(std::size_t slot) { free_.push_back(slot); }
  // Records that the counter goes up when everything recorded before is done.
  void record(VkCommandBuffer commands, std::size_t slot) const;
  // What the host will see when one more submission of the command buffer has run.
  Stamp next(std::size_t slot);

 private:
  void dispatch(VkCommandBuffer commands, std::size_t slot, std::uint32_t groups) const;
  struct Pool {
    std::unique_ptr<Allocation> counts;
    VkDescriptorPool descriptors = VK_NULL_HANDLE;
    VkDescriptorSet set = VK_NULL_HANDLE;
    std::vector<std::uint32_t> expected;
  };

  std::shared_ptr<Context> context_;
  std::shared_ptr<VkExecutable> counter_;
  std::vector<Pool> pools_;
  std::vector<std::size_t> free_;
};

}  // namespace meshloom::backends::vulkan
