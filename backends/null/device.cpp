#include <memory>
#include <utility>

#include "backends/null/backend.h"

namespace meshloom::backends::null {
namespace {

hal::DeviceInfo describe() {
  hal::DeviceInfo info;
  info.id = info.backend = info.name = "null";
  info.vendor = "meshloom";
  info.driver = "meshloom null 1";
  info.api = "none";
  info.computes = false;
  info.profile = hal::find_profile("host-cpu");
  // What any GPU offers; memory is the profile's affair (run_as).
  info.limits.memory_bytes = std::int64_t{1} << 50;
  info.limits.max_allocation_bytes = std::int64_t{4} << 30;
  info.limits.max_local_bytes = 48 << 10;
  info.limits.max_workgroup = 1024;
  info.limits.max_groups = {0x7fffffff, 65535, 65535};
  info.limits.subgroup = 32;
  info.limits.offset_alignment = 64;
  info.limits.max_bindings = 8;
  info.limits.max_constant_words = 16;
  return info;
}

class NullBuffer : public hal::Buffer {
 public:
  NullBuffer(std::int64_t bytes, std::string label) : Buffer(bytes, std::move(label)) {}
};

class NullExecutable : public hal::Executable {
 public:
  explicit NullExecutable(hal::ExecutableSpec spec) : Executable(std::move(spec)) {}
};

class NullCommandList : public hal::CommandList {
 public:
  void dispatch(const std::shared_ptr<hal::Executable>&, std::array<std::uint32_t, 3>,
                std::span<const hal::Binding>, std::span<const hal::Word>, const std::string&) override {}
  void copy(const hal::Binding&, const hal::Binding&, const std::string&) override {}
  void fill(const hal::Binding&, hal::Word, const std::string&) override {}
  void host_call(hal::HostFunction, std::span<const hal::Binding>, const std::string&) override {}
  void barrier() override {}
  void finish() override {}
};

class NullDevice : public hal::Device {
 public:
  NullDevice() : Device(describe()) {}

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override {
    return std::make_shared<NullExecutable>(spec);
  }
  std::unique_ptr<hal::CommandList> record(std::string) override {
    return std::make_unique<NullCommandList>();
  }
  void submit(hal::CommandList&) override {}
  void wait() override {}
  void write(hal::Buffer&, std::int64_t, std::span<const std::byte>) override {}
  void read(const hal::Buffer& buffer, std::int64_t, std::span<std::byte>) override {
    throw Error("null, reading '" + buffer.label() + "'",
                "the null device computes and keeps nothing: choose another --device to run");
  }

 protected:
  std::unique_ptr<hal::Buffer> do_allocate(std::int64_t bytes, const std::string& label) override {
    return std::make_unique<NullBuffer>(bytes, label);
  }
};

}  // namespace

hal::BackendEntry null_backend() {
  return {"null", [](std::string&) { return std::vector{describe()}; },
          [](int) -> std::unique_ptr<hal::Device> { return std::make_unique<NullDevice>(); }};
}

}  // namespace meshloom::backends::null
