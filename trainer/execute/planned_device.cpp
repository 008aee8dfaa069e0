#include "trainer/execute/planned_device.h"

#include <utility>

#include "hal/error.h"
#include "hal/null_command_list.h"

namespace meshloom::trainer {

std::shared_ptr<hal::Executable> PlannedDevice::load(const hal::ExecutableSpec& spec) {
  std::shared_ptr<PlannedExecutable>& slot = executables_[spec.key()];
  if (!slot) {
    slot = std::make_shared<PlannedExecutable>(spec);
    loaded_.push_back(spec);
  }
  return slot;
}

std::unique_ptr<hal::CommandList> PlannedDevice::record(std::string) {
  return std::make_unique<hal::NullCommandList>();
}

std::unique_ptr<hal::Buffer> PlannedDevice::do_allocate(std::int64_t bytes, const std::string& label) {
  return std::make_unique<PlannedBuffer>(bytes, label);
}

void PlannedDevice::refuse() const {
  throw hal::Error(info().id + ", planning", "recording commands must touch no data");
}

}  // namespace meshloom::trainer
