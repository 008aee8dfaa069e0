#include "backends/opencl/device/device.h"

#include <array>
#include <utility>

#include "backends/opencl/device/commands.h"
#include "backends/opencl/device/memory.h"
#include "backends/opencl/device/status.h"
#include "hal/bounds.h"

namespace meshloom::backends::opencl {
namespace {

// The number of commands that the host may be ahead of the device; each holds an event.
constexpr std::size_t kMaxInFlight = 16384;

}  // namespace

ClDevice::ClDevice(PhysicalDevice found) : Device(std::move(found.info)), device_(found.device) {
  const std::array<cl_context_properties, 3> properties{
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(found.platform), 0};
  cl_int status = CL_SUCCESS;
  context_ =
      Context{clCreateContext(properties.data(), 1, &device_, &on_driver_message, &messages_, &status)};
  check(status, info_.id, "clCreateContext");
  queue_ = Queue{clCreateCommandQueue(context_.get(), device_, 0, &status)};
  check(status, info_.id, "clCreateCommandQueue");
}

void CL_CALLBACK ClDevice::on_driver_message(const char* text, const void*, std::size_t, void* messages) {
  constexpr std::size_t kMaxBytes = 600;
  auto& into = *static_cast<DriverMessages*>(messages);
  const std::lock_guard lock(into.mutex);
  if (text == nullptr || into.text.size() > kMaxBytes) return;
  into.text += (into.text.empty() ? "" : " | ") + std::string(text).substr(0, kMaxBytes);
}

void ClDevice::check_done(cl_int status, const std::string& where, const std::string& call) {
  if (status == CL_SUCCESS) return;
  const std::lock_guard lock(messages_.mutex);
  check_work(status, where, call, messages_.text);
}

ClDevice::~ClDevice() { clFinish(queue_.get()); }

std::unique_ptr<hal::Buffer> ClDevice::do_allocate(std::int64_t bytes, const std::string& label) {
  return make_buffer(context_.get(), queue_.get(), bytes, label, info_.id);
}

std::shared_ptr<hal::Executable> ClDevice::load(const hal::ExecutableSpec& spec) {
  std::shared_ptr<ClExecutable>& slot = executables_[spec.key()];
  if (!slot) slot = Compiler{context_.get(), device_, info_, cache_}.compile(spec);
  return slot;
}

std::unique_ptr<hal::CommandList> ClDevice::record(std::string name) {
  return std::make_unique<ClCommandList>(info_.id, std::move(name), info_.limits, info_.timestamps);
}

void ClDevice::submit(hal::CommandList& list) {
  auto* own = dynamic_cast<ClCommandList*>(&list);
  if (!own) throw hal::Error(info_.id, "a list must be recorded by the device that runs it");
  if (own->timed()) {
    cl_int status = CL_SUCCESS;
    if (!timed_queue_.get())
      timed_queue_ = Queue{clCreateCommandQueue(context_.get(), device_, CL_QUEUE_PROFILING_ENABLE, &status)};
    check(status, info_.id, "clCreateCommandQueue with CL_QUEUE_PROFILING_ENABLE");
    wait();  // the two queues are not ordered
    InFlight in_flight;
    own->enqueue(timed_queue_.get(), in_flight);
    check_done(clFinish(timed_queue_.get()), info_.id, "clFinish");
    in_flight.check_complete();
    return;
  }
  if (in_flight_.size() > kMaxInFlight) wait();
  own->enqueue(queue_.get(), in_flight_);
  check_done(clFlush(queue_.get()), info_.id, "clFlush");
}

void ClDevice::wait() {
  check_done(clFinish(queue_.get()), info_.id, "clFinish");
  in_flight_.check_complete();
}

void ClDevice::write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) {
  const std::string where = info_.id + ", writing '" + buffer.label() + "'";
  hal::check_bounds(buffer, offset, data.size(), where);
  if (data.empty()) return;
  cl_event event = nullptr;
  check_done(
      clEnqueueWriteBuffer(queue_.get(), cl_buffer(buffer, where).memory(), CL_TRUE,
                           static_cast<std::size_t>(offset), data.size(), data.data(), 0, nullptr, &event),
      where, "clEnqueueWriteBuffer");
  in_flight_.add(event, where);
}

void ClDevice::read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) {
  const std::string where = info_.id + ", reading '" + buffer.label() + "'";
  hal::check_bounds(buffer, offset, data.size(), where);
  if (data.empty()) return;
  cl_event event = nullptr;
  check_done(
      clEnqueueReadBuffer(queue_.get(), cl_buffer(buffer, where).memory(), CL_TRUE,
                          static_cast<std::size_t>(offset), data.size(), data.data(), 0, nullptr, &event),
      where, "clEnqueueReadBuffer");
  in_flight_.add(event, where);
  in_flight_.check_complete();
}

}  // namespace meshloom::backends::opencl
