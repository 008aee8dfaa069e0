// The logical device with its one queue, shared by everything that is created from it.
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

// The descriptors of a kernel; none where it gets its buffers as device addresses.
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
  Context(std::shared_ptr<Instance> instance, const PhysicalDevice& found);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  VkDevice device() const { return device_; }
  const std::string& where() const { return where_; }
  const std::string& cache_key() const { return cache_key_; }
  // True where kernels read through texel buffers (see prelude_vulkan.glsl).
  bool uses_texel_buffers() const { return uses_texel_buffers_; }
  Slots slots(std::span<const hal::Access> bindings) const;
  // Created at first use; exists as long as the context.
  const Layout& layout(const Slots& slots);
  // The largest range of one descriptor, in bytes.
  std::int64_t max_descriptor_bytes(VkDescriptorType type) const {
    return type == VK_DESCRIPTOR_TYPE_STORAGE_BUFFER ? max_storage_bytes_ : max_texel_bytes_;
  }
  // Seconds per tick of the queue's timestamps; 0 where it has none. Only the bits of the mask are valid.
  double timestamp_seconds() const { return timestamp_seconds_; }
  std::uint64_t timestamp_mask() const { return timestamp_mask_; }
  // True where the host reads and writes device memory directly.
  bool unified() const { return unified_; }

  // -1 when no memory type has all `wanted` properties.
  int memory_type(std::uint32_t allowed, VkMemoryPropertyFlags wanted) const;

  VkCommandBuffer new_command_buffer() const;
  void free_command_buffer(VkCommandBuffer commands) const;

  // An event that a command buffer sets with its last command, so that the host can see that it ran: a driver may drop
  // a submission and signal its semaphore nevertheless. VK_NULL_HANDLE where the driver has no events.
  VkEvent new_event() const;
  // Records that `event` is set when everything recorded before is done.
  void record_event(VkCommandBuffer commands, VkEvent event) const;
  void free_event(VkEvent event);

  // Returns the value that `wait` waits for; it grows by one per submit. `commands` set the event `completed`. Where the
  // same event is submitted again before a wait, it is checked for the first of these submissions only.
  std::uint64_t submit(VkCommandBuffer commands, VkEvent completed);
  // Throws DeviceLost, also when earlier submitted work did not run. Prints a note on standard error when it takes long.
  void wait(std::uint64_t value);
  void wait_all() { wait(submitted_); }
  // For destructors: ignores errors, since a lost device runs nothing any more.
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
  std::map<Slots, Layout> layouts_;  // by exact slots, since every slot of a layout must be written
  bool uses_texel_buffers_ = false;
  std::int64_t max_storage_bytes_ = 0, max_texel_bytes_ = 0;
  std::uint64_t submitted_ = 0;
  struct PendingSubmission {
    VkEvent completed;
    std::uint64_t value;
  };
  std::vector<PendingSubmission> pending_;  // submitted, and not checked yet
};

// The push constants of every kernel.
struct PushConstants {
  std::uint64_t address[8];
  std::uint32_t words[16];
};
static_assert(sizeof(PushConstants) == 128);  // the size that every Vulkan device supports

}  // namespace meshloom::backends::vulkan
