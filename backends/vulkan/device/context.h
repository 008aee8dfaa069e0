// The logical device with its one queue, shared by everything that is created from it.
#pragma once

#include <vulkan/vulkan.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "backends/vulkan/device/enumerate.h"
#include "backends/vulkan/device/instance.h"
#include "hal/device.h"
#include "hal/submission.h"

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

// What a command buffer writes last, for the host to see that it ran (stamps.h).
struct Stamp {
  const volatile std::uint32_t* count = nullptr;
  std::uint32_t expected = 0;
};
// How the host sees that a submission ran, and that nothing in it was left out.
struct Proof {
  Stamp stamp;
  // Where the driver counts the invocations of kernels: the query, and the least that it must have counted.
  VkQueryPool counts = VK_NULL_HANDLE;
  std::uint32_t query = 0;
  std::uint64_t invocations = 0;
};

// What a device is opened for. Without `run` nothing can be submitted, which drivers without their hardware would not survive.
enum class Use : std::uint8_t { run, compile, inspect };

class Context {
 public:
  // To inspect, the driver must have VK_KHR_pipeline_executable_properties (Features::executable_info).
  Context(std::shared_ptr<Instance> instance, const PhysicalDevice& found, Use use = Use::run);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  VkDevice device() const { return device_; }
  const std::string& where() const { return where_; }
  const std::string& cache_key() const { return cache_key_; }
  Use use() const { return use_; }
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
  // True where the driver's counts of invocations can be relied on.
  bool counts_invocations() const { return counts_invocations_; }
  void rely_on_counts() { counts_invocations_ = true; }
  const hal::SubmissionSettings& settings() const { return settings_; }

  // -1 when no memory type has all `wanted` properties and none of the `unwanted`.
  int memory_type(std::uint32_t allowed, VkMemoryPropertyFlags wanted,
                  VkMemoryPropertyFlags unwanted = 0) const;

  VkCommandBuffer new_command_buffer() const;
  void free_command_buffer(VkCommandBuffer commands) const;

  // Returns the value that `wait` waits for; it grows by one per submit. `proof` is how the host will see that it ran.
  std::uint64_t submit(VkCommandBuffer commands, const hal::SubmissionRef& what, const Proof& proof);
  // Throws DeviceLost when the device fails, when it does not answer within the limit (SubmissionSettings), and when submitted
  // work did not run; it names the submission. Notes the time of each submission in its log.
  void wait(std::uint64_t value);
  void wait_all() { wait(submitted_); }
  // Whether a wait has seen the submission end.
  bool is_known_complete(std::uint64_t value) const {
    return pending_.empty() || pending_.front().value > value;
  }
  // For destructors: waits as long as `wait` does and ignores errors. Returns false where work may still be under way; then
  // nothing that the device could use must be freed any more.
  bool drain(std::uint64_t value) noexcept;
  void forget_pending() { pending_.clear(); }
  std::uint64_t submitted() const { return submitted_; }

 private:
  std::shared_ptr<Instance> instance_;
  std::string where_, cache_key_;
  Use use_;
  VkPhysicalDeviceMemoryProperties memory_{};
  bool unified_ = false;
  double timestamp_seconds_ = 0;
  std::uint64_t timestamp_mask_ = 0;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  std::map<Slots, Layout> layouts_;  // by exact slots, since every slot of a layout must be written
  bool uses_texel_buffers_ = false, counts_invocations_ = false;
  std::int64_t max_storage_bytes_ = 0, max_texel_bytes_ = 0;
  std::uint64_t submitted_ = 0;
  struct Pending {
    std::uint64_t value;
    hal::SubmissionRef what;
    Proof proof;
    std::chrono::steady_clock::time_point submitted;
    bool was_idle;  // nothing was under way before
  };
  void check_alive() const;
  [[noreturn]] void lose(const std::string& rule, const std::string& found);
  void await(const Pending& one);
  void check_ran(const Pending& one);

  hal::SubmissionSettings settings_ = hal::SubmissionSettings::from_environment();
  std::deque<Pending> pending_;  // submitted, and not waited for yet
  // The submission whose end the host saw when it happened, and when.
  std::uint64_t seen_ = 0;
  std::chrono::steady_clock::time_point seen_at_;
  std::string lost_;        // why the device is of no use any more; "" = it is
  bool abandoned_ = false;  // it may be at work for ever
};

// The push constants of every kernel.
struct PushConstants {
  std::uint64_t address[8];
  std::uint32_t words[16];

  // Where the first workgroup and the number of workgroups stand, three words each (prelude_grid.inc); nullptr where there is no
  // room for them, so that the dispatch cannot be cut.
  std::uint32_t* grid(bool by_address, std::uint32_t constant_words) {
    if (!by_address) return reinterpret_cast<std::uint32_t*>(address);
    return constant_words <= 10 ? words + 10 : nullptr;
  }
};
static_assert(sizeof(PushConstants) == 128);  // the size that every Vulkan device supports

}  // namespace meshloom::backends::vulkan
