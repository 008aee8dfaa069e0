// An in-order queue and what is under way on it. OpenCL has no wait with a limit, and reports a command that was dropped or
// aborted only by its event; and below some drivers the system cancels work without a word.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/opencl/device/api.h"
#include "hal/submission.h"

namespace meshloom::backends::opencl {

// The driver's messages to a context, from threads of its own.
struct DriverMessages {
  std::mutex mutex;
  std::string text;
};

// Every function throws DeviceLost, naming the command, when the device fails or does not answer within the limit, and when
// a command did not run.
class WorkQueue {
 public:
  WorkQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties,
            std::string where, std::shared_ptr<DriverMessages> messages, bool on_cpu);
  // Waits for what is under way, within the limit.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  cl_command_queue get() const { return queue_.get(); }
  const hal::SubmissionSettings& settings() const { return settings_; }
  bool idle() const { return under_way_.empty(); }

  // Between `begin` and `end` the commands of one submission are enqueued; the latter writes its stamp and flushes. Drivers on
  // CPUs can drop a command and run the next: there every command has its event. GPUs stop at the first error, and an event
  // costs time: there one command in 32 has one.
  void begin(const hal::SubmissionRef& what);
  bool wants_event() const;
  void add(cl_event event, std::string command);
  void add_without_event(std::string command);
  void end();

  // Waits for everything and checks that it ran. Notes the time of each submission in its log.
  void wait();
  // Waits for a marker on the queue, but checks nothing else.
  void wait_for_mark(cl_event mark, const std::string& where);
  // Wait for everything before.
  void read(cl_mem memory, std::size_t offset, std::span<std::byte> data, const std::string& where);
  void write(cl_mem memory, std::size_t offset, std::span<const std::byte> data, const std::string& where);

  // Waits within the limit and ignores errors. Returns false where work may still be under way; then nothing that the driver
  // could use must be freed any more.
  bool drain() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Command {
    Event event;
    std::string name;
  };
  struct UnderWay {
    hal::SubmissionRef what;
    std::vector<Command> commands;
    std::string first_without_event;  // since the last of `commands`, and how many
    std::size_t without_event = 0;
    std::uint32_t stamp = 0;  // 0 = none, as of transfers
    Clock::time_point submitted;
    bool was_idle = false;
  };
  enum class Ended { yes, no };

  void check_alive() const;
  [[noreturn]] void lose(const std::string& where, const std::string& rule, const std::string& found);
  // As check_work, with the driver's messages.
  void check_work(cl_int status, const std::string& where, const std::string& call);
  cl_int status_of(const Command& command);
  // Waits at most `limit` seconds, or without end where that is negative.
  Ended wait_for(cl_event event, double limit) const;
  // The limit begins anew with every command that ends: some drivers compile kernels when they first run.
  Ended wait_for(const UnderWay& one, double limit) const;
  void wait(UnderWay& one);
  void check_stamps();
  void transfer(cl_event event, const std::string& where);

  std::string where_;
  hal::SubmissionSettings settings_ = hal::SubmissionSettings::from_environment();
  std::shared_ptr<DriverMessages> messages_;
  std::size_t commands_of_event_;
  double shortest_pause_;  // between two looks at an event, in seconds
  Queue queue_;
  Memory stamps_;  // a ring of the numbers of the last submissions
  std::uint32_t stamped_ = 0;
  std::deque<UnderWay> under_way_;
  std::vector<std::uint32_t> ended_;  // stamps that are to be checked
  std::vector<hal::SubmissionRef> ended_what_;
  std::unique_ptr<std::vector<std::byte>>
      bounce_;         // what the driver copies from and to; outlives a copy that hangs
  bool seen_ = false;  // the end of the last submission, when it happened
  Clock::time_point seen_at_;
  bool lost_ = false, abandoned_ = false;
};

}  // namespace meshloom::backends::opencl
