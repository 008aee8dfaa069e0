// Command lists: kernels whose arguments are set once, and which are enqueued in order at every submit, in submissions that are
// flushed one by one. When these took much longer or shorter than predicted, the list is cut anew.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backends/opencl/device/api.h"
#include "backends/opencl/device/memory.h"
#include "backends/opencl/device/program.h"
#include "backends/opencl/device/work_queue.h"
#include "hal/device.h"
#include "hal/submission.h"

namespace meshloom::backends::opencl {

class ClCommandList final : public hal::CommandList {
 public:
  ClCommandList(std::string where, std::string name, const hal::Limits& limits, bool timestamps)
      : where_(std::move(where)), name_(std::move(name)), limits_(limits), timestamps_(timestamps) {}

  void dispatch(const std::shared_ptr<hal::Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const hal::Binding> bindings, std::span<const hal::Word> constants,
                const std::string& label) override;
  void copy(const hal::Binding& from, const hal::Binding& to, const std::string& label) override;
  void fill(const hal::Binding& to, hal::Word value, const std::string& label) override;
  void host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                 const std::string& label) override;
  // The queue runs in order, so a barrier needs no work.
  void barrier() override { check_open("barrier"); }
  int mark() override;
  void timestamp() override;
  std::vector<double> intervals() override;
  void predict(double seconds) override { costs_.predict(seconds); }
  void finish() override;

  // Blocks at host calls.
  void enqueue(WorkQueue& queue);
  // Waits for the mark of the last enqueue. Throws DeviceLost.
  void wait_for(WorkQueue& queue, int mark) const;
  // True where the list has timestamps, so that its queue must have profiling enabled.
  bool timed() const { return timed_; }

 private:
  struct Dispatch {
    std::shared_ptr<hal::Executable> executable;
    Kernel kernel;
    std::array<std::size_t, 3> global, local;
    std::size_t axis = 0;  // along which it may be cut
    cl_uint base = 0;      // the argument that says where a part begins
    bool moved = false;    // that argument is not 0
  };
  struct Range {
    cl_mem memory;
    std::byte* host;  // where memory of the host lies, with the offset; nullptr = memory of the device
    std::size_t offset, bytes;
    hal::Access access;
  };
  struct Copy {
    Range from, to;
  };
  struct Fill {
    Range to;
    hal::Word value;
  };
  struct HostCall {
    hal::HostFunction function;
    std::vector<Range> ranges;
  };
  struct Timestamp {};
  struct Mark {};
  struct Command {
    std::string label;
    std::variant<Dispatch, Copy, Fill, HostCall, Timestamp, Mark> what;
  };

  void check_open(const std::string& label) const;
  std::string place(const std::string& label) const { return where_ + ", list '" + name_ + "', " + label; }
  // Checks the binding against its buffer.
  Range range_of(const hal::Binding& binding, const std::string& label) const;
  // The same for what must be memory of the device.
  Range device_range(const hal::Binding& binding, const std::string& label) const;
  static cl_int enqueue_copy(const Copy& copy, cl_command_queue queue, cl_event* event);
  void add(std::string label, double weight, std::uint32_t parts, decltype(Command::what) what);
  void cut(double budget);
  void run_host_call(const HostCall& call, WorkQueue& queue, const std::string& at) const;
  void enqueue(WorkQueue& queue, Dispatch& dispatch, const hal::Piece& piece, const std::string& at,
               cl_event* event) const;

  std::string where_, name_;
  hal::Limits limits_;
  bool timestamps_;
  std::vector<Command> commands_;
  hal::ListCosts costs_;
  std::vector<hal::Submission> submissions_;
  std::shared_ptr<hal::SubmissionLog> log_;  // nullptr before the first submit
  std::vector<Event> times_, marks_;         // of the last submit
  int marked_ = 0;
  bool timed_ = false, finished_ = false;
};

}  // namespace meshloom::backends::opencl
