// Compute pipelines, with the driver's cache of each kept on disk.
#pragma once

#include <vulkan/vulkan.h>

#include <memory>

#include "backends/vulkan/device/context.h"
#include "hal/cache/disk_cache.h"
#include "hal/device.h"

namespace meshloom::backends::vulkan {

class VkExecutable final : public hal::Executable {
 public:
  // Compiles the spec's kernel. Throws Error with its name and the first lines of the compiler's log, or when its
  // workgroup is larger than the device takes.
  VkExecutable(std::shared_ptr<Context> context, const hal::DeviceInfo& info, const hal::DiskCache& cache,
               const hal::ExecutableSpec& spec);
  ~VkExecutable() override;
  VkExecutable(const VkExecutable&) = delete;
  VkExecutable& operator=(const VkExecutable&) = delete;

  // With buffers as descriptors, or (`far`, compiled when first asked for) as device addresses.
  VkPipeline pipeline(bool far) const;
  const Slots& slots() const { return slots_; }
  const Layout& layout(bool far) const { return far ? context_->layout({}) : context_->layout(slots_); }

 private:
  VkPipeline compile(bool far) const;

  std::shared_ptr<Context> context_;
  std::string where_;
  Slots slots_;
  hal::DiskCache cache_;
  mutable VkPipeline pipelines_[2] = {VK_NULL_HANDLE, VK_NULL_HANDLE};
};

}  // namespace meshloom::backends::vulkan
