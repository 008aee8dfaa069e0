#include "backends/vulkan/device/device.h"

#include <utility>

#include "backends/vulkan/device/commands.h"
#include "hal/bounds.h"
#include "hal/parallel_load.h"

namespace meshloom::backends::vulkan {
VkHalDevice::VkHalDevice(std::shared_ptr<Instance> instance, const PhysicalDevice& found)
    : Device(found.info),
      context_(std::make_shared<Context>(std::move(instance), found)),
      stamps_(std::make_shared<Stamps>(
          context_, std::make_shared<VkExecutable>(context_, info_, cache_, Stamps::counter_spec()))),
      transfer_(context_, stamps_) {
  if (found.features.pipeline_statistics && stamps_->driver_counts_exactly()) context_->rely_on_counts();
}

VkHalDevice::~VkHalDevice() {
  context_->drain(context_->submitted());
  context_->forget_pending();
}

std::unique_ptr<hal::Buffer> VkHalDevice::do_allocate(std::int64_t bytes, const std::string& label) {
  return std::make_unique<VkHalBuffer>(context_, bytes, label, Allocation::Kind::device);
}

std::unique_ptr<hal::Buffer> VkHalDevice::do_allocate_host(std::int64_t bytes, const std::string& label) {
  return std::make_unique<VkHalBuffer>(context_, bytes, label, Allocation::Kind::host);
}

std::shared_ptr<hal::Executable> VkHalDevice::load(const hal::ExecutableSpec& spec) {
  std::shared_ptr<VkExecutable>& slot = executables_[spec.key()];
  if (!slot) slot = std::make_shared<VkExecutable>(context_, info_, cache_, spec);
  return slot;
}

void VkHalDevice::load_all(std::span<const hal::ExecutableSpec> specs, const hal::LoadProgress& progress) {
  hal::load_missing(
      executables_, specs,
      // Layouts are shared, and made by this thread alone.
      [&](const hal::ExecutableSpec& spec) { (void)context_->layout(context_->slots(spec.bindings)); },
      [&](const hal::ExecutableSpec& spec) {
        return std::make_shared<VkExecutable>(context_, info_, cache_, spec);
      },
      progress);
}

std::unique_ptr<hal::CommandList> VkHalDevice::record(std::string name) {
  return std::make_unique<VkCommandList>(context_, stamps_, std::move(name), info_.limits);
}

void VkHalDevice::submit(hal::CommandList& list) {
  auto* own = dynamic_cast<VkCommandList*>(&list);
  if (!own) throw hal::Error(info_.id, "a list must be recorded by the device that runs it");
  own->submit(transfer_);
}

void VkHalDevice::wait() { context_->wait_all(); }

void VkHalDevice::wait_for(hal::CommandList& list, int mark) {
  auto* own = dynamic_cast<VkCommandList*>(&list);
  if (!own) throw hal::Error(info_.id, "a list must be recorded by the device that runs it");
  own->wait_for(mark);
}

void VkHalDevice::write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) {
  const std::string where = info_.id + ", writing '" + buffer.label() + "'";
  hal::check_bounds(buffer, offset, data.size(), where);
  if (!data.empty()) transfer_.write(vk_buffer(buffer, where).allocation(), offset, data);
}

void VkHalDevice::read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) {
  const std::string where = info_.id + ", reading '" + buffer.label() + "'";
  hal::check_bounds(buffer, offset, data.size(), where);
  if (!data.empty()) transfer_.read(vk_buffer(buffer, where).allocation(), offset, data);
}

}  // namespace meshloom::backends::vulkan
