#include "backends/opencl/device/commands.h"

#include <algorithm>

#include "backends/opencl/device/status.h"
#include "hal/bounds.h"

namespace meshloom::backends::opencl {

void ClCommandList::check_open(const std::string& label) const {
  if (finished_) throw hal::Error(place(label), "nothing can be recorded after finish()");
}

ClCommandList::Range ClCommandList::range_of(const hal::Binding& binding, const std::string& label) const {
  if (!binding.buffer) throw hal::Error(place(label), "a binding must name a buffer");
  const ClBuffer& buffer = cl_buffer(*binding.buffer, place(label));
  hal::check_bounds(buffer, binding, place(label));
  return {buffer.memory(), static_cast<std::size_t>(binding.offset), static_cast<std::size_t>(binding.bytes),
          binding.access};
}

void ClCommandList::dispatch(const std::shared_ptr<hal::Executable>& executable,
                             std::array<std::uint32_t, 3> groups, std::span<const hal::Binding> bindings,
                             std::span<const hal::Word> constants, const std::string& label) {
  check_open(label);
  const std::string at = place(label);
  const auto own = std::dynamic_pointer_cast<ClExecutable>(executable);
  if (!own) throw hal::Error(at, "an executable must be of the device that runs it");
  const hal::ExecutableSpec& spec = own->spec();
  if (bindings.size() != spec.bindings.size() || constants.size() != spec.constant_words)
    throw hal::Error(at,
                     "kernel '" + spec.kernel + "' takes " + std::to_string(spec.bindings.size()) +
                         " bindings and " + std::to_string(spec.constant_words) + " constants",
                     std::to_string(bindings.size()) + " and " + std::to_string(constants.size()));
  Dispatch dispatch{executable, own->kernel(at), {}, {}};
  for (std::size_t d = 0; d < 3; ++d) {
    if (groups[d] == 0 || groups[d] > limits_.max_groups[d])
      throw hal::Error(at,
                       "groups in dimension " + std::to_string(d) + " must be 1 to " +
                           std::to_string(limits_.max_groups[d]),
                       std::to_string(groups[d]));
    dispatch.local[d] = spec.workgroup[d];
    dispatch.global[d] = std::size_t{groups[d]} * spec.workgroup[d];
  }
  cl_uint argument = 0;
  auto set = [&](std::size_t size, const void* value) {
    check(clSetKernelArg(dispatch.kernel.get(), argument, size, value), at,
          "clSetKernelArg of argument " + std::to_string(argument));
    ++argument;
  };
  for (const hal::Binding& binding : bindings) {
    const Range range = range_of(binding, label);
    if (binding.offset % limits_.offset_alignment != 0)
      throw hal::Error(at, "offsets must be multiples of " + std::to_string(limits_.offset_alignment),
                       std::to_string(binding.offset));
    const cl_ulong offset = range.offset;
    set(sizeof range.memory, &range.memory);
    set(sizeof offset, &offset);
  }
  for (const hal::Word& constant : constants) set(sizeof constant, &constant);
  commands_.push_back({label, std::move(dispatch)});
}

void ClCommandList::copy(const hal::Binding& from, const hal::Binding& to, const std::string& label) {
  check_open(label);
  if (from.bytes != to.bytes)
    throw hal::Error(place(label), "both ranges of a copy have the same size",
                     std::to_string(from.bytes) + " and " + std::to_string(to.bytes) + " bytes");
  Copy copy{range_of(from, label), range_of(to, label)};
  if (copy.from.memory == copy.to.memory && from.offset < to.offset + to.bytes &&
      to.offset < from.offset + from.bytes)
    throw hal::Error(place(label), "the ranges of a copy must not overlap",
                     std::to_string(from.bytes) + " bytes at " + std::to_string(from.offset) + " and " +
                         std::to_string(to.offset) + " of '" + from.buffer->label() + "'");
  commands_.push_back({label, copy});
}

void ClCommandList::fill(const hal::Binding& to, hal::Word value, const std::string& label) {
  check_open(label);
  if (to.bytes % 4 != 0 || to.offset % 4 != 0)
    throw hal::Error(place(label), "a fill covers whole 32-bit words",
                     std::to_string(to.bytes) + " bytes at " + std::to_string(to.offset));
  commands_.push_back({label, Fill{range_of(to, label), value}});
}

void ClCommandList::host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                              const std::string& label) {
  check_open(label);
  if (!function) throw hal::Error(place(label), "a host call needs a function");
  HostCall call{std::move(function), {}};
  for (const hal::Binding& binding : bindings) call.ranges.push_back(range_of(binding, label));
  commands_.push_back({label, std::move(call)});
}

void ClCommandList::timestamp() {
  check_open("timestamp");
  if (!timestamps_) return CommandList::timestamp();
  commands_.push_back({"timestamp", Timestamp{}});
  timed_ = true;
}

std::vector<double> ClCommandList::intervals() {
  std::vector<double> seconds;
  cl_ulong before = 0;
  for (const Event& event : times_) {
    cl_ulong at = 0;  // nanoseconds
    check(clGetEventProfilingInfo(event.get(), CL_PROFILING_COMMAND_END, sizeof at, &at, nullptr),
          place("timestamp"), "clGetEventProfilingInfo");
    if (before != 0) seconds.push_back(static_cast<double>(at - std::min(at, before)) * 1e-9);
    before = at;
  }
  return seconds;
}

void ClCommandList::finish() {
  check_open("finish");
  finished_ = true;
}

void ClCommandList::run_host_call(const HostCall& call, cl_command_queue queue, const std::string& at,
                                  InFlight& in_flight) const {
  std::vector<std::vector<std::byte>> copies;
  std::vector<hal::HostRange> views;
  for (const Range& range : call.ranges) {
    std::vector<std::byte>& bytes = copies.emplace_back(range.bytes);
    // Written ranges are read too, since the function may leave parts of them unchanged.
    if (range.bytes > 0) {
      cl_event event = nullptr;
      check_work(clEnqueueReadBuffer(queue, range.memory, CL_TRUE, range.offset, range.bytes, bytes.data(), 0,
                                     nullptr, &event),
                 at, "clEnqueueReadBuffer", "");
      in_flight.add(event, at);
      in_flight.check_complete();
    }
    views.push_back({bytes.data(), static_cast<std::int64_t>(range.bytes)});
  }
  call.function(views);
  for (std::size_t i = 0; i < call.ranges.size(); ++i) {
    const Range& range = call.ranges[i];
    if (range.access == hal::Access::read || range.bytes == 0) continue;
    cl_event event = nullptr;
    check_work(clEnqueueWriteBuffer(queue, range.memory, CL_TRUE, range.offset, range.bytes, copies[i].data(),
                                    0, nullptr, &event),
               at, "clEnqueueWriteBuffer", "");
    in_flight.add(event, at);
  }
}

void ClCommandList::enqueue(cl_command_queue queue, InFlight& in_flight) {
  if (!finished_)
    throw hal::Error(where_ + ", list '" + name_ + "'", "finish() must come before the first submit");
  times_.clear();
  for (const Command& command : commands_) {
    std::string at = place(command.label);
    cl_event event = nullptr;
    if (std::holds_alternative<Timestamp>(command.what)) {
      check(clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event), at, "clEnqueueMarkerWithWaitList");
      times_.emplace_back(event);
      continue;
    }
    if (const auto* call = std::get_if<HostCall>(&command.what)) {
      run_host_call(*call, queue, at, in_flight);
      continue;
    }
    if (const auto* dispatch = std::get_if<Dispatch>(&command.what)) {
      check(clEnqueueNDRangeKernel(queue, dispatch->kernel.get(), 3, nullptr, dispatch->global.data(),
                                   dispatch->local.data(), 0, nullptr, &event),
            at, "clEnqueueNDRangeKernel");
    } else if (const auto* copy = std::get_if<Copy>(&command.what)) {
      if (copy->from.bytes == 0) continue;
      check(clEnqueueCopyBuffer(queue, copy->from.memory, copy->to.memory, copy->from.offset, copy->to.offset,
                                copy->from.bytes, 0, nullptr, &event),
            at, "clEnqueueCopyBuffer");
    } else {
      const Fill& fill = std::get<Fill>(command.what);
      if (fill.to.bytes == 0) continue;
      check(clEnqueueFillBuffer(queue, fill.to.memory, &fill.value, sizeof fill.value, fill.to.offset,
                                fill.to.bytes, 0, nullptr, &event),
            at, "clEnqueueFillBuffer");
    }
    in_flight.add(event, std::move(at));
  }
}

}  // namespace meshloom::backends::opencl
