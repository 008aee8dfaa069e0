// Buffers of a Vulkan device, and transfers between them and the host.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backends/vulkan/device/context.h"
#include "hal/device.h"

namespace meshloom::backends::vulkan {

class Stamps;

// A VkBuffer with memory of its own, which stays mapped where the host can reach it.
class Allocation {
 public:
  enum class Kind { device, staging, stamps, host };  // all but the first in memory of the host
  // Throws OutOfMemory naming `label`.
  Allocation(std::shared_ptr<Context> context, std::int64_t bytes, Kind kind, const std::string& label);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  VkBuffer buffer() const { return buffer_; }
  VkDeviceAddress address() const { return address_; }  // of device memory
  std::byte* mapped() const { return mapped_; }         // nullptr when the host cannot reach it

 private:
  std::shared_ptr<Context> context_;
  VkBuffer buffer_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  VkDeviceAddress address_ = 0;
  std::byte* mapped_ = nullptr;
};

class VkHalBuffer final : public hal::Buffer {
 public:
  VkHalBuffer(std::shared_ptr<Context> context, std::int64_t bytes, const std::string& label,
              Allocation::Kind kind)
      : VkHalBuffer(bytes, label, std::make_unique<Allocation>(std::move(context), bytes, kind, label),
                    kind) {}
  const Allocation& allocation() const { return *allocation_; }

 private:
  VkHalBuffer(std::int64_t bytes, const std::string& label, std::unique_ptr<Allocation> allocation,
              Allocation::Kind kind)
      : Buffer(bytes, label, kind == Allocation::Kind::host ? allocation->mapped() : nullptr),
        allocation_(std::move(allocation)) {}

  std::unique_ptr<Allocation> allocation_;
};

// Throws Error when the buffer is not of this backend.
const VkHalBuffer& vk_buffer(const hal::Buffer& buffer, const std::string& where);

// Copies bytes between host and device: directly where memory is unified, otherwise in pieces through one staging buffer.
// Waits for everything submitted before, and until the copy is complete.
class Transfer {
 public:
  Transfer(std::shared_ptr<Context> context, std::shared_ptr<Stamps> stamps)
      : context_(std::move(context)), stamps_(std::move(stamps)) {}
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void write(const Allocation& to, std::int64_t offset, std::span<const std::byte> data);
  void read(const Allocation& from, std::int64_t offset, std::span<std::byte> data);

 private:
  void copy(VkBuffer from, std::int64_t from_offset, VkBuffer to, std::int64_t to_offset, std::int64_t bytes);

  std::shared_ptr<Context> context_;
  std::shared_ptr<Stamps> stamps_;
  std::unique_ptr<Allocation> staging_;  // created at first use
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  std::optional<std::size_t> slot_;  // of its stamp
};

}  // namespace meshloom::backends::vulkan
