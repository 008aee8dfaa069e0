// Compute pipelines, with the driver's cache of each stored on disk.
#pragma once

#include <vulkan/vulkan.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/vulkan/device/context.h"
#include "hal/cache/disk_cache.h"
#include "hal/device.h"
#include "hal/inspection.h"

namespace meshloom::backends::vulkan {

// Throws Error with `where` when the device has no subgroups of so many invocations; 0 = any.
void require_subgroup(const hal::DeviceInfo& info, std::uint32_t subgroup, const std::string& where);

class VkExecutable final : public hal::Executable, public hal::InspectableExecutable {
 public:
  // Compiles the spec's kernel. Throws Error with its name and the first lines of the compiler's log, or when its
  // workgroup is larger than the device supports.
  VkExecutable(std::shared_ptr<Context> context, const hal::DeviceInfo& info, const hal::DiskCache& cache,
               const hal::ExecutableSpec& spec);
  ~VkExecutable() override;
  VkExecutable(const VkExecutable&) = delete;
  VkExecutable& operator=(const VkExecutable&) = delete;

  // The pipeline that gets buffers as descriptors, or, with `by_address`, as device addresses; compiled at first use.
  VkPipeline pipeline(bool by_address) const;
  const Slots& slots() const { return slots_; }
  // Where one range is beyond a descriptor's limit, all buffers of a dispatch are passed by address.
  bool needs_addresses(std::span<const hal::Binding> bindings) const;
  // In a context that inspects only.
  hal::Inspection inspect(std::span<const hal::Binding> bindings) const override;
  const Layout& layout(bool by_address) const {
    return by_address ? context_->layout({}) : context_->layout(slots_);
  }

 private:
  std::string source(bool by_address) const;
  std::vector<std::uint32_t> spirv(const std::string& source) const;
  VkPipeline compile(bool by_address) const;

  std::shared_ptr<Context> context_;
  std::string where_, device_name_;
  Slots slots_;
  hal::DiskCache cache_;
  mutable VkPipeline pipelines_[2] = {VK_NULL_HANDLE, VK_NULL_HANDLE};
};

}  // namespace meshloom::backends::vulkan
