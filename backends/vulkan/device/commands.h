// Command lists: command buffers that are recorded once and submitted many times, split at host calls.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/vulkan/device/context.h"
#include "backends/vulkan/device/memory.h"
#include "backends/vulkan/device/pipeline.h"
#include "hal/device.h"

namespace meshloom::backends::vulkan {

class VkCommandList final : public hal::CommandList {
 public:
  VkCommandList(std::shared_ptr<Context> context, std::string name, const hal::Limits& limits);
  ~VkCommandList() override;

  void dispatch(const std::shared_ptr<hal::Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const hal::Binding> bindings, std::span<const hal::Word> constants,
                const std::string& label) override;
  void copy(const hal::Binding& from, const hal::Binding& to, const std::string& label) override;
  void fill(const hal::Binding& to, hal::Word value, const std::string& label) override;
  void host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                 const std::string& label) override;
  void barrier() override;
  void timestamp() override;
  std::vector<double> intervals() override;
  void finish() override;

  // Blocks at host calls.
  void submit(Transfer& transfer);

 private:
  struct Range {
    const Allocation* allocation;
    std::int64_t offset, bytes;
    hal::Access access;
  };
  struct HostCall {
    hal::HostFunction function;
    std::vector<Range> ranges;
    std::string label;
  };
  // Commands of the device, followed by a host call (none in the last segment).
  struct Segment {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VkEvent completed = VK_NULL_HANDLE;
    HostCall call;
  };

  void begin_segment();
  void end_segment();
  VkCommandBuffer open_segment(const std::string& label);  // throws when finished
  std::string place(const std::string& label) const;
  Range range_of(const hal::Binding& binding, const std::string& label) const;
  VkDescriptorSet new_set(VkDescriptorSetLayout layout, const std::string& label);
  VkBufferView new_view(const VkDescriptorBufferInfo& range, const std::string& label);
  void run_host_call(const HostCall& call, Transfer& transfer) const;

  std::shared_ptr<Context> context_;
  std::string name_;
  hal::Limits limits_;
  std::vector<Segment> segments_;
  std::vector<std::shared_ptr<hal::Executable>> executables_;  // kept alive
  std::vector<VkDescriptorPool> pools_;
  std::vector<VkBufferView> views_;
  std::vector<VkQueryPool> time_pools_;  // full but the last
  std::uint32_t times_ = 0;
  std::uint32_t sets_left_ = 0;  // in the last pool
  bool finished_ = false;
  std::uint64_t last_ = 0;  // the timeline value of the last submit
};

}  // namespace meshloom::backends::vulkan
