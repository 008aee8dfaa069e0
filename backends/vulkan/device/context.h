// The logical device with its one queue, shared by everything made from it.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "backends/vulkan/device/enumerate.h"
#include "backends/vulkan/device/instance.h"
#include "hal/device.h"

namespace meshloom::backends::vulkan {

// The descriptors of a kernel. None = its buffers go by device address.
struct Slots {
  std::uint32_t count = 0;
  std::uint32_t texels = 0;  // bit i: slot i is a texel buffer, else a storage buffer
  VkDescriptorType type(std::uint32_t slot) const {
    return texels >> slot & 1 ? VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
  }
  auto operator<=>(const Slots&) const = default;
};
struct Layout {
  VkDescriptorSetLayout set = VK_NULL_HANDLE;
  VkPipelineLayout pipeline = VK_NULL_HANDLE;
};

class Context {
 public:
  Context(std::shared_ptr<Instance> instance, const Found& found);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  VkDevice device() const { return device_; }
  const std::string& where() const { return where_; }
  const std::string& cache_key() const { return cache_key_; }
  // Kernels read through texel buffers (see prelude_vulkan.glsl).
  bool reads_texels() const { return reads_texels_; }
  Slots slots(std::span<const hal::Access> bindings) const;
  // Made when first asked for; lives as long as the context.
  const Layout& layout(const Slots& slots);
  // Largest range of one descriptor, in bytes.
  std::int64_t most_descriptor_bytes(VkDescriptorType type) const {
    return type == VK_DESCRIPTOR_TYPE_STORAGE_BUFFER ? most_storage_bytes_ : most_texel_bytes_;
  }
  // Of one tick of the queue's timestamps; 0 where it has none. Only the bits of the mask count.
  double timestamp_seconds() const { return timestamp_seconds_; }
  std::uint64_t timestamp_mask() const { return timestamp_mask_; }
  // The host may touch device memory itself: one memory serves both.
  bool unified() const { return unified_; }

  // -1 when no memory type has all `wanted` properties.
  int memory_type(std::uint32_t allowed, VkMemoryPropertyFlags wanted) const;

  VkCommandBuffer new_command_buffer() const;
  void free_command_buffer(VkCommandBuffer commands) const;

  // What a command buffer sets with its last command, so that the host can see that it ran: a driver may drop a
  // submission and signal its semaphore all the same. VK_NULL_HANDLE where the driver has no events.
  VkEvent new_event() const;
  // Records that `event` is set when all before it is done.
  void record_event(VkCommandBuffer commands, VkEvent event) const;
  void free_event(VkEvent event);

  // Returns the value that `wait` waits for. Values grow by one per submit. `commands` set `ran`; of submissions that
  // follow each other without a wait, the first proves that it ran.
  std::uint64_t submit(VkCommandBuffer commands, VkEvent ran);
  // Throws DeviceLost, also when something submitted before did not run. Says on standard error when it takes long.
  void wait(std::uint64_t value);
  void wait_all() { wait(submitted_); }
  // For destructors: a lost device has nothing left to wait for.
  void wait_quietly(std::uint64_t value) const noexcept;
  std::uint64_t submitted() const { return submitted_; }

 private:
  std::shared_ptr<Instance> instance_;
  std::string where_, cache_key_;
  VkPhysicalDeviceMemoryProperties memory_{};
  bool unified_ = false;
  double timestamp_seconds_ = 0;
  std::uint64_t timestamp_mask_ = 0;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  std::map<Slots, Layout> layouts_;  // exact ones: every slot a layout has is written
  bool reads_texels_ = false;
  std::int64_t most_storage_bytes_ = 0, most_texel_bytes_ = 0;
  std::uint64_t submitted_ = 0;
  struct Unproven {
    VkEvent ran;
    std::uint64_t value;
  };
  std::vector<Unproven> unproven_;  // submitted and not looked at yet
};

// Push constants of every kernel.
struct Push {
  std::uint64_t address[8];
  std::uint32_t words[16];
};
static_assert(sizeof(Push) == 128);  // what every Vulkan device takes

}  // namespace meshloom::backends::vulkan
