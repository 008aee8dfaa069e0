#include "backends/opencl/device/device.h"

#include <array>
#include <cstring>
#include <utility>

#include "backends/opencl/device/commands.h"
#include "backends/opencl/device/memory.h"
#include "backends/opencl/device/status.h"
#include "hal/bounds.h"
#include "hal/parallel_load.h"

namespace meshloom::backends::opencl {
ClDevice::ClDevice(PhysicalDevice found) : Device(std::move(found.info)), device_(found.device) {
  const std::array<cl_context_properties, 3> properties{
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(found.platform), 0};
  cl_int status = CL_SUCCESS;
  context_ =
      Context{clCreateContext(properties.data(), 1, &device_, &on_driver_message, messages_.get(), &status)};
  check(status, info_.id, "clCreateContext");
  queue_ = std::make_unique<WorkQueue>(context_.get(), device_, 0, info_.id, messages_, info_.is_cpu);
}

void CL_CALLBACK ClDevice::on_driver_message(const char* text, const void*, std::size_t, void* messages) {
  constexpr std::size_t kMaxBytes = 600;
  auto& into = *static_cast<DriverMessages*>(messages);
  const std::lock_guard lock(into.mutex);
  if (text == nullptr || into.text.size() > kMaxBytes) return;
  into.text += (into.text.empty() ? "" : " | ") + std::string(text).substr(0, kMaxBytes);
}

ClDevice::~ClDevice() {
  for (const auto* queue : {&queue_, &timed_queue_})
    if (*queue && !(*queue)->drain()) context_.leak();  // the driver may still be at work in it
}

std::unique_ptr<hal::Buffer> ClDevice::do_allocate(std::int64_t bytes, const std::string& label) {
  return make_buffer(context_.get(), queue_->get(), bytes, label, info_.id);
}

std::unique_ptr<hal::Buffer> ClDevice::do_allocate_host(std::int64_t bytes, const std::string& label) {
  return make_host_buffer(context_.get(), *queue_, bytes, label, info_.id);
}

std::shared_ptr<hal::Executable> ClDevice::load(const hal::ExecutableSpec& spec) {
  std::shared_ptr<ClExecutable>& slot = executables_[spec.key()];
  if (!slot) slot = Compiler{context_.get(), device_, info_, cache_}.compile(spec);
  return slot;
}

void ClDevice::load_all(std::span<const hal::ExecutableSpec> specs, const hal::LoadProgress& progress) {
  const Compiler compiler{context_.get(), device_, info_, cache_};
  hal::load_missing(
      executables_, specs, [](const hal::ExecutableSpec&) {},
      [&](const hal::ExecutableSpec& spec) { return compiler.compile(spec); }, progress);
}

std::unique_ptr<hal::CommandList> ClDevice::record(std::string name) {
  return std::make_unique<ClCommandList>(info_.id, std::move(name), info_.limits, info_.timestamps);
}

void ClDevice::submit(hal::CommandList& list) {
  auto* own = dynamic_cast<ClCommandList*>(&list);
  if (!own) throw hal::Error(info_.id, "a list must be recorded by the device that runs it");
  if (own->timed()) {
    if (!timed_queue_)
      timed_queue_ = std::make_unique<WorkQueue>(context_.get(), device_, CL_QUEUE_PROFILING_ENABLE, info_.id,
                                                 messages_, info_.is_cpu);
    wait();  // the two queues are not ordered
    own->enqueue(*timed_queue_);
    timed_queue_->wait();
    return;
  }
  own->enqueue(*queue_);
}

void ClDevice::wait() { queue_->wait(); }

void ClDevice::wait_for(hal::CommandList& list, int mark) {
  auto* own = dynamic_cast<ClCommandList*>(&list);
  if (!own) throw hal::Error(info_.id, "a list must be recorded by the device that runs it");
  own->wait_for(*queue_, mark);
}

void ClDevice::write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) {
  const std::string where = info_.id + ", writing '" + buffer.label() + "'";
  hal::check_bounds(buffer, offset, data.size(), where);
  if (std::byte* const host = cl_buffer(buffer, where).host_address()) {
    queue_->wait();
    std::memcpy(host + offset, data.data(), data.size());
    return;
  }
  queue_->write(cl_buffer(buffer, where).object(), static_cast<std::size_t>(offset), data, where);
}

void ClDevice::read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) {
  const std::string where = info_.id + ", reading '" + buffer.label() + "'";
  hal::check_bounds(buffer, offset, data.size(), where);
  if (const std::byte* const host = cl_buffer(buffer, where).host_address()) {
    queue_->wait();
    std::memcpy(data.data(), host + offset, data.size());
    return;
  }
  queue_->read(cl_buffer(buffer, where).object(), static_cast<std::size_t>(offset), data, where);
}

}  // namespace meshloom::backends::opencl
