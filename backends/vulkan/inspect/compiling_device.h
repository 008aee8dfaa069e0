// A Vulkan device that compiles kernels and runs none: for drivers without their hardware, and for inspecting kernels.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "backends/simt/inspect/compile_only_device.h"
#include "backends/vulkan/device/context.h"
#include "backends/vulkan/device/pipeline.h"
#include "hal/cache/disk_cache.h"
#include "hal/inspection.h"

namespace meshloom::backends::vulkan {

class CompilingDevice final : public simt::CompileOnlyDevice, public hal::ShaderInspector {
 public:
  // `use` is compile or inspect. Throws Error when the driver lacks what inspecting needs.
  CompilingDevice(std::shared_ptr<Instance> instance, const PhysicalDevice& found, Use use);

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override;
  hal::InspectedShader inspect_shader(const hal::ShaderModule& shader) override;

 private:
  hal::DiskCache cache_ = hal::DiskCache::from_environment();
  std::shared_ptr<Context> context_;
  std::map<std::string, std::shared_ptr<VkExecutable>> executables_;  // by ExecutableSpec::key()
};

}  // namespace meshloom::backends::vulkan
