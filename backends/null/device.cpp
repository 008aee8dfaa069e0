#include <memory>
#include <utility>
#include <vector>

#include "backends/null/backend.h"
#include "backends/null/choice.h"
#include "hal/null_command_list.h"

namespace meshloom::backends::null {
namespace {

class NullBuffer : public hal::Buffer {
 public:
  // There are no bytes anywhere; the address only says of which kind they would be.
  NullBuffer(std::int64_t bytes, std::string label, hal::MemoryKind kind)
      : Buffer(bytes, std::move(label), kind == hal::MemoryKind::host ? &nothing_ : nullptr) {}

 private:
  std::byte nothing_{};
};

class NullExecutable : public hal::Executable {
 public:
  explicit NullExecutable(hal::ExecutableSpec spec) : Executable(std::move(spec)) {}
};

class NullDevice : public hal::Device {
 public:
  explicit NullDevice(Choice choice) : Device(choice.own()), choice_(std::move(choice)) {}

  // Another profile may have another driver.
  void run_as(const hal::Profile& profile) override {
    const std::shared_ptr<const hal::DeviceInfo> host = info_.host;
    info_ = choice_.on(profile);
    info_.host = host;
    Device::run_as(profile);
  }

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override {
    return std::make_shared<NullExecutable>(spec);
  }
  std::unique_ptr<hal::CommandList> record(std::string) override {
    return std::make_unique<hal::NullCommandList>();
  }
  void submit(hal::CommandList&) override {}
  void wait() override {}
  void write(hal::Buffer&, std::int64_t, std::span<const std::byte>) override {}
  void read(const hal::Buffer& buffer, std::int64_t, std::span<std::byte>) override {
    throw Error(info_.id + ", reading '" + buffer.label() + "'",
                "the null device computes and keeps nothing: choose another --device to run");
  }

 protected:
  std::unique_ptr<hal::Buffer> do_allocate(std::int64_t bytes, const std::string& label) override {
    return std::make_unique<NullBuffer>(bytes, label, hal::MemoryKind::device);
  }
  std::unique_ptr<hal::Buffer> do_allocate_host(std::int64_t bytes, const std::string& label) override {
    return std::make_unique<NullBuffer>(bytes, label, hal::MemoryKind::host);
  }

 private:
  Choice choice_;
};

}  // namespace

hal::BackendEntry null_backend() {
  hal::BackendEntry entry;
  entry.name = "null";
  entry.enumerate = [](std::string&) { return std::vector{choice_of("").own()}; };
  entry.open = [](int) -> std::unique_ptr<hal::Device> {
    return std::make_unique<NullDevice>(choice_of(""));
  };
  entry.open_named = [](const std::string& name) -> std::unique_ptr<hal::Device> {
    return std::make_unique<NullDevice>(choice_of(name));
  };
  return entry;
}

}  // namespace meshloom::backends::null
