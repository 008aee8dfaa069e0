// One Vulkan device behind one compute queue.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "backends/vulkan/device/context.h"
#include "backends/vulkan/device/enumerate.h"
#include "backends/vulkan/device/memory.h"
#include "backends/vulkan/device/pipeline.h"
#include "backends/vulkan/device/stamps.h"
#include "hal/cache/disk_cache.h"
#include "hal/device.h"

namespace meshloom::backends::vulkan {

class VkHalDevice final : public hal::Device {
 public:
  VkHalDevice(std::shared_ptr<Instance> instance, const PhysicalDevice& found);
  ~VkHalDevice() override;

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override;
  void load_all(std::span<const hal::ExecutableSpec> specs, const hal::LoadProgress& progress) override;
  std::unique_ptr<hal::CommandList> record(std::string name) override;
  void submit(hal::CommandList& list) override;
  void wait() override;
  void wait_for(hal::CommandList& list, int mark) override;
  void write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) override;
  void read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) override;

 protected:
  std::unique_ptr<hal::Buffer> do_allocate(std::int64_t bytes, const std::string& label) override;
  std::unique_ptr<hal::Buffer> do_allocate_host(std::int64_t bytes, const std::string& label) override;

 private:
  hal::DiskCache cache_ = hal::DiskCache::from_environment();
  std::shared_ptr<Context> context_;
  std::shared_ptr<Stamps> stamps_;
  Transfer transfer_;
  std::map<std::string, std::shared_ptr<VkExecutable>> executables_;  // by ExecutableSpec::key()
};

}  // namespace meshloom::backends::vulkan
