// The host's processor as a device.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "backends/cpu/device/command_list.h"
#include "backends/cpu/device/thread_pool.h"
#include "backends/cpu/kernel_table.h"
#include "hal/device.h"

namespace meshloom::backends::cpu {

// The description of the one CPU device. The first call measures its peak rates (some tens of milliseconds).
hal::DeviceInfo cpu_info();

// submit() runs the list before it returns, so wait() returns at once and host reads and writes are in order.
class CpuDevice : public hal::Device {
 public:
  // `workers` threads; 0 = wanted_workers().
  explicit CpuDevice(int workers = 0);

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override;
  std::unique_ptr<hal::CommandList> record(std::string name) override;
  void submit(hal::CommandList& list) override;
  void wait() override {}
  std::unique_ptr<hal::Buffer> share(const hal::Buffer& of_other) override;
  void write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) override;
  void read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) override;

 protected:
  std::unique_ptr<hal::Buffer> do_allocate(std::int64_t bytes, const std::string& label) override;
  // The same memory, counted as what it is asked for.
  std::unique_ptr<hal::Buffer> do_allocate_host(std::int64_t bytes, const std::string& label) override;

 private:
  std::unique_ptr<hal::Buffer> make_buffer(std::int64_t bytes, const std::string& label,
                                           hal::MemoryKind kind) const;

  KernelTable kernels_;
  std::unordered_map<std::string, std::weak_ptr<hal::Executable>> loaded_;  // by ExecutableSpec::key()
  ThreadPool pool_;
};

}  // namespace meshloom::backends::cpu
