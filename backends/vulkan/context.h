// The logical device with its one queue, shared by everything made from it.
#pragma once

#include <vulkan/vulkan.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "backends/vulkan/instance.h"
#include "backends/vulkan/listing.h"

namespace meshloom::backends::vulkan {

class Context {
 public:
  Context(std::shared_ptr<Instance> instance, const Found& found);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  VkDevice device() const { return device_; }
  const std::string& where() const { return where_; }
  const std::string& cache_key() const { return cache_key_; }
  // For kernels of `bindings` descriptors; 0 = by device address.
  VkPipelineLayout layout(std::size_t bindings) const { return layouts_[bindings]; }
  VkDescriptorSetLayout set_layout(std::size_t bindings) const { return set_layouts_[bindings]; }
  // Largest range of one descriptor, in bytes.
  std::int64_t most_descriptor_bytes() const { return most_descriptor_bytes_; }
  // The host may touch device memory itself: one memory serves both.
  bool unified() const { return unified_; }

  // -1 when no memory type has all `wanted` properties.
  int memory_type(std::uint32_t allowed, VkMemoryPropertyFlags wanted) const;

  VkCommandBuffer new_command_buffer() const;
  void free_command_buffer(VkCommandBuffer commands) const;

  // Returns the value that `wait` waits for. Values grow by one per submit.
  std::uint64_t submit(VkCommandBuffer commands);
  void wait(std::uint64_t value) const;
  void wait_all() const { wait(submitted_); }
  // For destructors: a lost device has nothing left to wait for.
  void wait_quietly(std::uint64_t value) const noexcept;
  std::uint64_t submitted() const { return submitted_; }

 private:
  std::shared_ptr<Instance> instance_;
  std::string where_, cache_key_;
  VkPhysicalDeviceMemoryProperties memory_{};
  bool unified_ = false;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  // One layout per number of descriptors: every slot a layout has is written.
  std::array<VkDescriptorSetLayout, 9> set_layouts_{};
  std::array<VkPipelineLayout, 9> layouts_{};
  std::int64_t most_descriptor_bytes_ = 0;
  std::uint64_t submitted_ = 0;
};

// Push constants of every kernel.
struct Push {
  std::uint64_t address[8];
  std::uint32_t words[16];
};
static_assert(sizeof(Push) == 128);  // what every Vulkan device takes

}  // namespace meshloom::backends::vulkan
