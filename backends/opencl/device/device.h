// One OpenCL device behind one in-order queue.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "backends/opencl/device/api.h"
#include "backends/opencl/device/enumerate.h"
#include "backends/opencl/device/program.h"
#include "backends/opencl/device/work_queue.h"
#include "hal/cache/disk_cache.h"
#include "hal/device.h"

namespace meshloom::backends::opencl {

class ClDevice final : public hal::Device {
 public:
  explicit ClDevice(PhysicalDevice found);
  ~ClDevice() override;

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
  static void CL_CALLBACK on_driver_message(const char* text, const void*, std::size_t, void* messages);

  cl_device_id device_;
  std::shared_ptr<DriverMessages> messages_ = std::make_shared<DriverMessages>();
  Context context_;
  std::unique_ptr<WorkQueue> queue_;
  std::unique_ptr<WorkQueue>
      timed_queue_;  // with profiling, which may cost time; created when a list needs it
  hal::DiskCache cache_ = hal::DiskCache::from_environment();
  std::map<std::string, std::shared_ptr<ClExecutable>> executables_;  // by ExecutableSpec::key()
};

}  // namespace meshloom::backends::opencl
