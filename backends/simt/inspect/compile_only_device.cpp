#include "backends/simt/inspect/compile_only_device.h"

#include <utility>

#include "hal/error.h"
#include "hal/null_command_list.h"

namespace meshloom::backends::simt {
namespace {

class NoMemory final : public hal::Buffer {
 public:
  NoMemory(std::int64_t bytes, std::string label) : Buffer(bytes, std::move(label)) {}
};

}  // namespace

CompileOnlyDevice::CompileOnlyDevice(hal::DeviceInfo info) : Device(std::move(info)) {
  info_.computes = false;
}

void CompileOnlyDevice::refuse(const std::string& what) const {
  throw hal::Error(info_.id + " (" + info_.name + ")",
                   "this device compiles kernels and never runs them: choose another --device to run", what);
}

std::unique_ptr<hal::CommandList> CompileOnlyDevice::record(std::string) {
  return std::make_unique<hal::NullCommandList>();
}

void CompileOnlyDevice::submit(hal::CommandList&) { refuse("commands that were submitted"); }

void CompileOnlyDevice::write(hal::Buffer& buffer, std::int64_t, std::span<const std::byte>) {
  refuse("a write to '" + buffer.label() + "'");
}

void CompileOnlyDevice::read(const hal::Buffer& buffer, std::int64_t, std::span<std::byte>) {
  refuse("a read of '" + buffer.label() + "'");
}

std::unique_ptr<hal::Buffer> CompileOnlyDevice::do_allocate(std::int64_t bytes, const std::string& label) {
  return std::make_unique<NoMemory>(bytes, label);
}

}  // namespace meshloom::backends::simt
