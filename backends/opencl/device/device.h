// One OpenCL device behind one in-order queue.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backends/opencl/device/api.h"
#include "backends/opencl/device/enumerate.h"
#include "backends/opencl/device/in_flight.h"
#include "backends/opencl/device/program.h"
#include "hal/cache/disk_cache.h"
#include "hal/device.h"

namespace meshloom::backends::opencl {

class ClDevice final : public hal::Device {
 public:
  explicit ClDevice(PhysicalDevice found);
  ~ClDevice() override;

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override;
  std::unique_ptr<hal::CommandList> record(std::string name) override;
  void submit(hal::CommandList& list) override;
  void wait() override;
  void write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) override;
  void read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) override;

 protected:
  std::unique_ptr<hal::Buffer> do_allocate(std::int64_t bytes, const std::string& label) override;

 private:
  // The driver's messages to the context, from threads of its own.
  struct DriverMessages {
    std::mutex mutex;
    std::string text;
  };
  static void CL_CALLBACK on_driver_message(const char* text, const void*, std::size_t, void* messages);
  // As check_work, with the driver's messages.
  void check_done(cl_int status, const std::string& where, const std::string& call);

  cl_device_id device_;
  DriverMessages messages_;
  Context context_;
  Queue queue_;
  Queue timed_queue_;   // with profiling, which may cost time; created when a list needs it
  InFlight in_flight_;  // on queue_
  hal::DiskCache cache_ = hal::DiskCache::from_environment();
  std::map<std::string, std::shared_ptr<ClExecutable>> executables_;  // by ExecutableSpec::key()
};

}  // namespace meshloom::backends::opencl
