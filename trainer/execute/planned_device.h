// A device that has no memory and runs nothing: programs are recorded on it to see what they would give a real one to do.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "hal/device.h"

namespace meshloom::trainer {

class PlannedBuffer : public hal::Buffer {
 public:
  PlannedBuffer(std::int64_t bytes, const std::string& label) : Buffer(bytes, label) {}
};

class PlannedExecutable : public hal::Executable {
 public:
  explicit PlannedExecutable(hal::ExecutableSpec spec) : Executable(std::move(spec)) {}
};

class PlannedDevice : public hal::Device {
 public:
  explicit PlannedDevice(const hal::DeviceInfo& info) : Device(info) {}

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override;
  std::unique_ptr<hal::CommandList> record(std::string name) override;
  void submit(hal::CommandList&) override { refuse(); }
  void wait() override {}
  void write(hal::Buffer&, std::int64_t, std::span<const std::byte>) override { refuse(); }
  void read(const hal::Buffer&, std::int64_t, std::span<std::byte>) override { refuse(); }

  // What was loaded, each once, in the order of its first load.
  const std::vector<hal::ExecutableSpec>& loaded() const { return loaded_; }

 protected:
  std::unique_ptr<hal::Buffer> do_allocate(std::int64_t bytes, const std::string& label) override;

 private:
  [[noreturn]] void refuse() const;

  std::map<std::string, std::shared_ptr<PlannedExecutable>> executables_;  // by ExecutableSpec::key()
  std::vector<hal::ExecutableSpec> loaded_;
};

}  // namespace meshloom::trainer
