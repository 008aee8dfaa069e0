#include "backends/opencl/device/commands.h"

#include <algorithm>

#include "backends/opencl/device/status.h"
#include "hal/bounds.h"

namespace meshloom::backends::opencl {

void ClCommandList::check_open(const std::string& label) const {
  if (finished_) throw hal::Error(place(label), "nothing can be recorded after finish()");
}

void ClCommandList::add(std::string label, double weight, std::uint32_t parts, decltype(Command::what) what) {
  commands_.push_back({std::move(label), std::move(what)});
  if (std::holds_alternative<HostCall>(commands_.back().what) ||
      std::holds_alternative<Mark>(commands_.back().what))
    costs_.add_alone();
  else
    costs_.add(weight, parts);
}

ClCommandList::Range ClCommandList::range_of(const hal::Binding& binding, const std::string& label) const {
  if (!binding.buffer) throw hal::Error(place(label), "a binding must name a buffer");
  const ClBuffer& buffer = cl_buffer(*binding.buffer, place(label));
  hal::check_bounds(buffer, binding, place(label));
  std::byte* const host = buffer.host_address() ? buffer.host_address() + binding.offset : nullptr;
  return {buffer.object(), host, static_cast<std::size_t>(binding.offset),
          static_cast<std::size_t>(binding.bytes), binding.access};
}

ClCommandList::Range ClCommandList::device_range(const hal::Binding& binding,
                                                 const std::string& label) const {
  const Range range = range_of(binding, label);
  if (range.host)
    throw hal::Error(place(label), "only copies take memory of the host",
                     "'" + binding.buffer->label() + "'");
  return range;
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
  Dispatch dispatch{executable, own->kernel(at), {}, {}, 0, 0, false};
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
    const Range range = device_range(binding, label);
    if (binding.offset % limits_.offset_alignment != 0)
      throw hal::Error(at, "offsets must be multiples of " + std::to_string(limits_.offset_alignment),
                       std::to_string(binding.offset));
    const cl_ulong offset = range.offset;
    set(sizeof range.memory, &range.memory);
    set(sizeof offset, &offset);
  }
  for (const hal::Word& constant : constants) set(sizeof constant, &constant);
  const std::array<cl_int, 4> from{},
      all{static_cast<cl_int>(groups[0]), static_cast<cl_int>(groups[1]), static_cast<cl_int>(groups[2]), 0};
  dispatch.base = argument;
  set(sizeof from, from.data());
  set(sizeof all, all.data());
  dispatch.axis = static_cast<std::size_t>(std::max_element(groups.begin(), groups.end()) - groups.begin());
  const double invocations =
      static_cast<double>(dispatch.global[0] * dispatch.global[1] * dispatch.global[2]);
  const std::uint32_t parts = groups[dispatch.axis];
  add(label, invocations, parts, std::move(dispatch));
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
  if (copy.from.host && copy.to.host)
    throw hal::Error(place(label), "one side of a copy must be memory of the device",
                     "'" + from.buffer->label() + "' and '" + to.buffer->label() + "' of the host");
  add(label, static_cast<double>(copy.from.bytes) / hal::kBytesPerInvocation, 1, copy);
}

void ClCommandList::fill(const hal::Binding& to, hal::Word value, const std::string& label) {
  check_open(label);
  if (to.bytes % 4 != 0 || to.offset % 4 != 0)
    throw hal::Error(place(label), "a fill covers whole 32-bit words",
                     std::to_string(to.bytes) + " bytes at " + std::to_string(to.offset));
  add(label, static_cast<double>(to.bytes) / hal::kBytesPerInvocation, 1,
      Fill{device_range(to, label), value});
}

void ClCommandList::host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                              const std::string& label) {
  check_open(label);
  if (!function) throw hal::Error(place(label), "a host call needs a function");
  HostCall call{std::move(function), {}};
  for (const hal::Binding& binding : bindings) call.ranges.push_back(range_of(binding, label));
  add(label, 0, 1, std::move(call));
}

int ClCommandList::mark() {
  check_open("mark");
  add("", 0, 1, Mark{});
  return marked_++;
}

void ClCommandList::wait_for(WorkQueue& queue, int mark) const {
  queue.wait_for_mark(marks_.at(static_cast<std::size_t>(mark)).get(), place("mark " + std::to_string(mark)));
}

cl_int ClCommandList::enqueue_copy(const Copy& copy, cl_command_queue queue, cl_event* event) {
  const auto& [from, to] = copy;
  if (from.host)
    return clEnqueueWriteBuffer(queue, to.memory, CL_FALSE, to.offset, to.bytes, from.host, 0, nullptr,
                                event);
  if (to.host)
    return clEnqueueReadBuffer(queue, from.memory, CL_FALSE, from.offset, from.bytes, to.host, 0, nullptr,
                               event);
  return clEnqueueCopyBuffer(queue, from.memory, to.memory, from.offset, to.offset, from.bytes, 0, nullptr,
                             event);
}

void ClCommandList::timestamp() {
  check_open("timestamp");
  if (!timestamps_) return CommandList::timestamp();
  add("", 0, 1, Timestamp{});
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
  costs_.close();
  finished_ = true;
}

void ClCommandList::run_host_call(const HostCall& call, WorkQueue& queue, const std::string& at) const {
  std::vector<std::vector<std::byte>> copies;
  std::vector<hal::HostRange> views;
  for (const Range& range : call.ranges) {
    std::vector<std::byte>& bytes = copies.emplace_back(range.host ? 0 : range.bytes);
    if (range.host) {  // the queue was waited for
      views.push_back({range.host, static_cast<std::int64_t>(range.bytes)});
      continue;
    }
    // Written ranges are read too, since the function may leave parts of them unchanged.
    queue.read(range.memory, range.offset, bytes, at);
    views.push_back({bytes.data(), static_cast<std::int64_t>(range.bytes)});
  }
  call.function(views);
  for (std::size_t i = 0; i < call.ranges.size(); ++i)
    if (call.ranges[i].access != hal::Access::read && !call.ranges[i].host)
      queue.write(call.ranges[i].memory, call.ranges[i].offset, copies[i], at);
}

void ClCommandList::cut(double budget) {
  submissions_ = hal::cut_into_submissions(costs_.commands(), budget);
  log_ = hal::log_of(name_, submissions_, [&](std::size_t i) { return commands_[i].label; });
}

void ClCommandList::enqueue(WorkQueue& queue, Dispatch& dispatch, const hal::Piece& piece,
                            const std::string& at, cl_event* event) const {
  std::array<std::size_t, 3> global = dispatch.global;
  global[dispatch.axis] = piece.count * dispatch.local[dispatch.axis];
  if (piece.first > 0 || dispatch.moved) {
    std::array<cl_int, 4> base{};
    base[dispatch.axis] = static_cast<cl_int>(piece.first);
    check(clSetKernelArg(dispatch.kernel.get(), dispatch.base, sizeof base, base.data()), at,
          "clSetKernelArg of argument " + std::to_string(dispatch.base));
    dispatch.moved = piece.first > 0;
  }
  check(clEnqueueNDRangeKernel(queue.get(), dispatch.kernel.get(), 3, nullptr, global.data(),
                               dispatch.local.data(), 0, nullptr, event),
        at, "clEnqueueNDRangeKernel");
}

void ClCommandList::enqueue(WorkQueue& queue) {
  if (!finished_)
    throw hal::Error(where_ + ", list '" + name_ + "'", "finish() must come before the first submit");
  const double budget = queue.settings().budget;
  if (!log_) {
    cut(budget);
  } else if (queue.idle()) {
    if (costs_.learn(submissions_, *log_, queue.settings())) cut(budget);
  }
  times_.clear();
  marks_.clear();
  for (std::size_t i = 0; i < submissions_.size(); ++i) {
    const hal::Submission& submission = submissions_[i];
    const std::size_t first = submission.pieces.front().command;
    if (const auto* call = std::get_if<HostCall>(&commands_[first].what)) {
      queue.wait();
      run_host_call(*call, queue, place(commands_[first].label));
      continue;
    }
    if (std::holds_alternative<Mark>(commands_[first].what)) {
      cl_event event = nullptr;
      check(clEnqueueMarkerWithWaitList(queue.get(), 0, nullptr, &event), place("mark"),
            "clEnqueueMarkerWithWaitList");
      marks_.emplace_back(event);
      check(clFlush(queue.get()), place("mark"), "clFlush");
      continue;
    }
    queue.begin({log_, i});
    for (const hal::Piece& piece : submission.pieces) {
      Command& command = commands_[piece.command];
      std::string at = place(command.label);
      cl_event event = nullptr;
      if (std::holds_alternative<Timestamp>(command.what)) {
        check(clEnqueueMarkerWithWaitList(queue.get(), 0, nullptr, &event), at,
              "clEnqueueMarkerWithWaitList");
        times_.emplace_back(event);
        continue;
      }
      cl_event* const wanted = queue.wants_event() ? &event : nullptr;
      if (auto* dispatch = std::get_if<Dispatch>(&command.what)) {
        enqueue(queue, *dispatch, piece, at, wanted);
      } else if (const auto* copy = std::get_if<Copy>(&command.what)) {
        if (copy->from.bytes == 0) continue;
        check(enqueue_copy(*copy, queue.get(), wanted), at, "the copy");
      } else {
        const Fill& fill = std::get<Fill>(command.what);
        if (fill.to.bytes == 0) continue;
        check(clEnqueueFillBuffer(queue.get(), fill.to.memory, &fill.value, sizeof fill.value, fill.to.offset,
                                  fill.to.bytes, 0, nullptr, wanted),
              at, "clEnqueueFillBuffer");
      }
      if (wanted)
        queue.add(event, std::move(at));
      else
        queue.add_without_event(std::move(at));
    }
    queue.end();
  }
}

}  // namespace meshloom::backends::opencl
