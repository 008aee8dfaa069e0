// A Vulkan device that compiles kernels and runs none: for drivers without their hardware, and for inspecting kernels.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "backends/vulkan/device/context.h"
#include "backends/vulkan/device/pipeline.h"
#include "hal/cache/disk_cache.h"
#include "hal/device.h"
#include "hal/inspection.h"

namespace meshloom::backends::vulkan {

// Its memory is counted and not there; lists take commands and keep none; submit(), write() and read() throw Error.
class CompilingDevice final : public hal::Device, public hal::ShaderInspector {
 public:
  // `use` is compile or inspect. Throws Error when the driver lacks what inspecting needs.
  CompilingDevice(std::shared_ptr<Instance> instance, const PhysicalDevice& found, Use use);

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override;
  hal::InspectedShader inspect_shader(const hal::ForeignShader& shader) override;
  std::unique_ptr<hal::CommandList> record(std::string name) override;
  void submit(hal::CommandList& list) override;
  void wait() override {}
  void write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) override;
  void read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) override;

 protected:
  std::unique_ptr<hal::Buffer> do_allocate(std::int64_t bytes, const std::string& label) override;

 private:
  [[noreturn]] void refuse(const std::string& what) const;

  hal::DiskCache cache_ = hal::DiskCache::from_environment();
  std::shared_ptr<Context> context_;
  std::map<std::string, std::shared_ptr<VkExecutable>> executables_;  // by ExecutableSpec::key()
};

}  // namespace meshloom::backends::vulkan
