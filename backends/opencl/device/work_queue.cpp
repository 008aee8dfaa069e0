#include "backends/opencl/device/work_queue.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <utility>

#include "backends/opencl/device/status.h"
#include "hal/error.h"

namespace meshloom::backends::opencl {
namespace {

constexpr const char* kRule = "a command that was enqueued must have run when the driver says it has";
constexpr std::uint32_t kStamps = 1024;
constexpr std::size_t kBounceBytes = std::size_t{16} << 20;
// Between two looks at an event passes a part of the time that it was waited for, within these limits: NVIDIA's driver reports
// an event by its callback only milliseconds after its end. Drivers on CPUs report it at once and need the processor themselves.
constexpr double kShortestPause = 20e-6, kLongestPause = 10e-3, kPauseOfWaited = 1.0 / 32;
constexpr double kSecondsForLost = 1;
// A look that took longer counts as this many seconds: the process was stopped meanwhile.
constexpr double kLongestLook = 1;

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// What the callback of an event tells the waiting thread.
struct Signal {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
};

void CL_CALLBACK on_end(cl_event, cl_int, void* data) {
  const std::unique_ptr<std::shared_ptr<Signal>> signal(static_cast<std::shared_ptr<Signal>*>(data));
  const std::lock_guard lock((*signal)->mutex);
  (*signal)->done = true;
  (*signal)->ended.notify_all();
}

cl_int execution_status(cl_event event, cl_int& status) {
  return clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
}

}  // namespace

WorkQueue::WorkQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties,
                     std::string where, std::shared_ptr<DriverMessages> messages, bool on_cpu)
    : where_(std::move(where)),
      messages_(std::move(messages)),
      commands_of_event_(on_cpu ? 1 : 32),
      shortest_pause_(on_cpu ? kLongestPause : kShortestPause) {
  settings_.compiles_late = on_cpu;
  cl_int status = CL_SUCCESS;
  queue_ = Queue{clCreateCommandQueue(context, device, properties, &status)};
  check(status, where_, "clCreateCommandQueue");
  stamps_ = Memory{clCreateBuffer(context, CL_MEM_READ_WRITE, 4 * kStamps, nullptr, &status)};
  check(status, where_ + ", allocating 'stamps of submissions'", "clCreateBuffer");
  bounce_ = std::make_unique<std::vector<std::byte>>();
}

WorkQueue::~WorkQueue() {
  if (drain()) return;
  queue_.leak();
  stamps_.leak();
  static_cast<void>(bounce_.release());
  new std::shared_ptr<DriverMessages>(messages_);
}

void WorkQueue::check_alive() const {
  if (lost_) throw hal::DeviceLost(where_, "a device that was lost must be opened again");
}

void WorkQueue::lose(const std::string& where, const std::string& rule, const std::string& found) {
  lost_ = true;
  throw hal::DeviceLost(where, rule, found);
}

void WorkQueue::check_work(cl_int status, const std::string& where, const std::string& call) {
  if (status == CL_SUCCESS) return;
  std::string messages;
  {
    const std::lock_guard lock(messages_->mutex);
    messages = messages_->text;
  }
  try {
    opencl::check_work(status, where, call, messages);
  } catch (const hal::DeviceLost&) {
    lost_ = true;
    throw;
  }
}

void WorkQueue::begin(const hal::SubmissionRef& what) {
  check_alive();
  if (under_way_.size() >= kStamps / 2) wait();
  const bool was_idle = under_way_.empty();
  under_way_.push_back({what, {}, {}, 0, 0, Clock::now(), was_idle});
}

bool WorkQueue::wants_event() const {
  return under_way_.back().without_event + 1 >= commands_of_event_ || under_way_.back().commands.empty();
}

void WorkQueue::add(cl_event event, std::string command) {
  if (!event) lose(command, kRule, "the driver took it and made no event for it");
  UnderWay& one = under_way_.back();
  if (std::exchange(one.without_event, 0) > 0) command = one.first_without_event + " to " + command;
  one.commands.push_back({Event{event}, std::move(command)});
}

void WorkQueue::add_without_event(std::string command) {
  if (under_way_.back().without_event++ == 0) under_way_.back().first_without_event = std::move(command);
}

void WorkQueue::end() {
  UnderWay& one = under_way_.back();
  const std::string name = where_ + ", the stamp of " + one.what.describe();
  if (++stamped_ == 0) ++stamped_;
  cl_event event = nullptr;
  check(clEnqueueFillBuffer(queue_.get(), stamps_.get(), &stamped_, sizeof stamped_,
                            sizeof stamped_ * (stamped_ % kStamps), sizeof stamped_, 0, nullptr, &event),
        name, "clEnqueueFillBuffer");
  add(event, name);
  one.stamp = stamped_;
  one.submitted = Clock::now();
  check_work(clFlush(queue_.get()), where_, "clFlush");
}

cl_int WorkQueue::status_of(const Command& command) {
  cl_int status = CL_COMPLETE;
  check_work(execution_status(command.event.get(), status), command.name, "clGetEventInfo");
  return status;
}

WorkQueue::Ended WorkQueue::wait_for(cl_event event, double limit) const {
  const auto ended = [&] {
    cl_int status = CL_COMPLETE;
    return execution_status(event, status) != CL_SUCCESS || status <= CL_COMPLETE;
  };
  if (ended()) return Ended::yes;
  const auto signal = std::make_shared<Signal>();
  auto data = std::make_unique<std::shared_ptr<Signal>>(signal);
  if (clSetEventCallback(event, CL_COMPLETE, &on_end, data.get()) == CL_SUCCESS)
    static_cast<void>(data.release());  // the callback deletes it
  std::unique_lock lock(signal->mutex);
  for (double waited = 0;;) {
    const Clock::time_point before = Clock::now();
    const std::chrono::duration<double> pause(
        std::clamp(waited * kPauseOfWaited, shortest_pause_, kLongestPause));
    signal->ended.wait_for(lock, pause, [&] { return signal->done; });
    signal->done = false;
    lock.unlock();
    if (ended()) return Ended::yes;
    waited += std::min(seconds_between(before, Clock::now()), kLongestLook);
    if (limit >= 0 && waited > limit) return Ended::no;
    lock.lock();
  }
}

WorkQueue::Ended WorkQueue::wait_for(const UnderWay& one, double limit) const {
  std::size_t done = 0;
  for (double waited = 0;;) {
    const Clock::time_point begin = Clock::now();
    if (wait_for(one.commands.back().event.get(), limit < 0 ? 1 : std::min(limit, 1.0)) == Ended::yes)
      return Ended::yes;
    const std::size_t before = done;
    cl_int status = CL_COMPLETE;
    while (done < one.commands.size() &&
           (execution_status(one.commands[done].event.get(), status) != CL_SUCCESS || status <= CL_COMPLETE))
      ++done;
    waited = done > before ? 0 : waited + std::min(seconds_between(begin, Clock::now()), 2 * kLongestLook);
    if (limit >= 0 && waited > limit) return Ended::no;
  }
}

void WorkQueue::wait(UnderWay& one) {
  if (one.commands.empty()) return;
  const cl_event last = one.commands.back().event.get();
  cl_int status = CL_COMPLETE;
  const bool blocked = execution_status(last, status) == CL_SUCCESS && status > CL_COMPLETE;
  const double limit = settings_.limit_of(one.what.predicted(), one.what.ran_before());
  const auto hang = [&](const Command& command) {
    lose(command.name, "the device must finish what is submitted to it; " + hal::waited_text(limit),
         "no end of " + one.what.describe());
  };
  if (wait_for(one, limit) == Ended::no) {
    for (const Command& command : one.commands)
      if (status_of(command) > CL_COMPLETE) hang(command);
    hang(one.commands.back());
  }
  const Clock::time_point now = Clock::now();
  // Between the end of the one before and this one's the device had nothing else to do.
  if (blocked && (one.was_idle || seen_))
    one.what.measured(seconds_between(one.was_idle ? one.submitted : std::max(one.submitted, seen_at_), now));
  else
    one.what.measured(-1);
  seen_ = blocked;
  seen_at_ = now;
  for (const Command& command : one.commands) {
    if (status_of(command) > CL_COMPLETE && wait_for(command.event.get(), limit) == Ended::no) hang(command);
    if (const cl_int end = status_of(command); end != CL_COMPLETE)
      lose(command.name, kRule, "its event ended as " + status_name(end));
  }
}

void WorkQueue::wait() {
  check_alive();
  while (!under_way_.empty()) {
    UnderWay& one = under_way_.front();
    wait(one);
    if (one.stamp != 0) {
      ended_.push_back(one.stamp);
      ended_what_.push_back(one.what);
    }
    under_way_.pop_front();
  }
  seen_ = false;
  if (!ended_.empty()) check_stamps();
}

void WorkQueue::wait_for_mark(cl_event mark, const std::string& where) {
  check_alive();
  double predicted = 0;
  bool ran_before = true;
  for (const UnderWay& one : under_way_) {
    predicted += one.what.predicted();
    ran_before = ran_before && one.what.ran_before();
  }
  const double limit = settings_.limit_of(predicted, ran_before);
  if (wait_for(mark, limit) == Ended::no)
    lose(where, "the device must reach it; " + hal::waited_text(limit), "no end of what is before it");
  cl_int status = CL_COMPLETE;
  check_work(execution_status(mark, status), where, "clGetEventInfo");
  if (status != CL_COMPLETE) lose(where, kRule, "its event ended as " + status_name(status));
}

void WorkQueue::check_stamps() {
  const std::vector<std::uint32_t> expected = std::exchange(ended_, {});
  const std::vector<hal::SubmissionRef> what = std::exchange(ended_what_, {});
  std::array<std::uint32_t, kStamps> found;
  read(stamps_.get(), 0, std::as_writable_bytes(std::span(found)),
       where_ + ", reading stamps of submissions");
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (found[expected[i] % kStamps] != expected[i])
      lose(where_, kRule, what[i].describe() + ", whose last command did not");
}

void WorkQueue::transfer(cl_event event, const std::string& where) {
  under_way_.push_back({{}, {}, {}, 0, 0, Clock::now(), under_way_.empty()});
  add(event, where);
  check_work(clFlush(queue_.get()), where, "clFlush");
  wait(under_way_.front());
  under_way_.clear();
}

void WorkQueue::read(cl_mem memory, std::size_t offset, std::span<std::byte> data, const std::string& where) {
  wait();
  for (std::size_t at = 0; at < data.size(); at += kBounceBytes) {
    const std::size_t bytes = std::min(kBounceBytes, data.size() - at);
    if (bounce_->size() < bytes) bounce_->resize(bytes);
    cl_event event = nullptr;
    check_work(clEnqueueReadBuffer(queue_.get(), memory, CL_FALSE, offset + at, bytes, bounce_->data(), 0,
                                   nullptr, &event),
               where, "clEnqueueReadBuffer");
    transfer(event, where);
    std::memcpy(data.data() + at, bounce_->data(), bytes);
  }
}

void WorkQueue::write(cl_mem memory, std::size_t offset, std::span<const std::byte> data,
                      const std::string& where) {
  wait();
  for (std::size_t at = 0; at < data.size(); at += kBounceBytes) {
    const std::size_t bytes = std::min(kBounceBytes, data.size() - at);
    if (bounce_->size() < bytes) bounce_->resize(bytes);
    std::memcpy(bounce_->data(), data.data() + at, bytes);
    cl_event event = nullptr;
    check_work(clEnqueueWriteBuffer(queue_.get(), memory, CL_FALSE, offset + at, bytes, bounce_->data(), 0,
                                    nullptr, &event),
               where, "clEnqueueWriteBuffer");
    transfer(event, where);
  }
}

bool WorkQueue::drain() noexcept {
  if (abandoned_) return false;
  for (const UnderWay& one : under_way_) {
    if (one.commands.empty()) continue;
    const double limit =
        lost_ ? kSecondsForLost : settings_.limit_of(one.what.predicted(), one.what.ran_before());
    if (wait_for(one, limit) == Ended::yes) continue;
    abandoned_ = true;
    return false;
  }
  return true;
}

}  // namespace meshloom::backends::opencl
