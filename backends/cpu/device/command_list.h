// The command lists of the CPU backend: commands are checked when recorded and run in order when submitted. Dispatches between two
// barriers run as one, so that threads wait for each other once.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "backends/cpu/device/kernel.h"
#include "backends/cpu/device/thread_pool.h"
#include "hal/device.h"

namespace meshloom::backends::cpu {

class CpuExecutable : public hal::Executable {
 public:
  CpuExecutable(hal::ExecutableSpec spec, KernelFunction function, Schedule schedule = Schedule::guided)
      : Executable(std::move(spec)), function_(function), schedule_(schedule) {}
  KernelFunction function() const { return function_; }
  Schedule schedule() const { return schedule_; }

 private:
  KernelFunction function_;
  Schedule schedule_;
};

class CpuCommandList : public hal::CommandList {
 public:
  CpuCommandList(std::string name, const hal::Limits& limits) : name_(std::move(name)), limits_(limits) {}

  void dispatch(const std::shared_ptr<hal::Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const hal::Binding> bindings, std::span<const hal::Word> constants,
                const std::string& label) override;
  void copy(const hal::Binding& from, const hal::Binding& to, const std::string& label) override;
  void fill(const hal::Binding& to, hal::Word value, const std::string& label) override;
  void host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                 const std::string& label) override;
  void barrier() override;
  void timestamp() override;
  std::vector<double> intervals() override;
  void finish() override;

  // Runs all commands. An error in one is thrown with its label.
  void run(ThreadPool& pool);
  bool finished() const { return finished_; }
  const std::string& name() const { return name_; }

 private:
  struct Dispatch {
    std::shared_ptr<hal::Executable> executable;
    KernelFunction function;
    Schedule schedule;
    std::vector<std::byte*> buffers;
    std::vector<std::int64_t> bytes;
    std::vector<hal::Word> constants;
    std::array<std::uint32_t, 3> groups;
    std::uint32_t items;
  };
  struct Copy {
    const std::byte* from;
    std::byte* to;
    std::int64_t bytes;
  };
  struct Fill {
    std::byte* to;
    std::int64_t words;
    std::uint32_t value;
  };
  struct HostCall {
    hal::HostFunction function;
    std::vector<hal::HostRange> ranges;
  };
  struct Timestamp {};
  struct Command {
    std::string label;
    std::variant<Dispatch, Copy, Fill, HostCall, Timestamp> what;
    bool after_barrier;
  };
  // Commands [first, last), of which the dispatches of several work items run at once where there is more than one.
  struct Step {
    std::size_t first = 0, last = 0;
    std::vector<std::size_t> at_once = {};
    std::uint32_t items = 0;             // of all of them
    Schedule schedule = Schedule::even;  // unless one of them is guided
  };

  void check_open(const std::string& label) const;
  std::string where(const std::string& label) const { return "cpu, list '" + name_ + "', '" + label + "'"; }
  template <typename What>
  void record(const std::string& label, What what);
  // Calls f(), and names the command in what it throws.
  template <typename F>
  void naming(const Command& command, F f) const;
  void run(const Step& step, ThreadPool& pool);
  static void run(const Dispatch& dispatch, ThreadPool& pool);
  static void run(const Copy& copy, ThreadPool& pool);
  static void run(const Fill& fill, ThreadPool& pool);
  static void run(const HostCall& call, ThreadPool& pool);
  void run(const Timestamp&, ThreadPool&) { times_.push_back(std::chrono::steady_clock::now()); }

  std::string name_;
  hal::Limits limits_;
  bool finished_ = false, after_barrier_ = true;
  std::vector<Command> commands_;
  std::vector<Step> steps_;
  std::vector<std::chrono::steady_clock::time_point> times_;  // of the last run
};

}  // namespace meshloom::backends::cpu
