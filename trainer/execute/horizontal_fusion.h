// Runs independent dispatches of one kernel as one launch: horizontal fusion, as XLA has it, of commands. A launch takes a driver of
// OpenCL about ten microseconds, longer than small kernels run: projections to queries, keys and values, the updates of all
// parameters and their casts are one launch for up to eight of them. Each dispatch computes what it would alone, to the bit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "hal/device.h"
#include "hal/submission.h"
#include "trainer/execute/planned_device.h"

namespace meshloom::trainer {

// Whether launches of several dispatches are worth it: a GPU's driver of OpenCL that computes rightly with them. PoCL runs as many tokens per second with them as without.
// MESHLOOM_HORIZONTAL_FUSION decides otherwise where the device can.
bool fuses_dispatches(const hal::DeviceInfo& device);

// Takes commands in their order, and finish() records them in `into`, which stays open. Of two commands of which one writes what the
// other touches, the first stays the first; other dispatches may come later, up to the first command that waits for one of those that
// share the launch, or earlier, to fill it. None passes a mark or a call of the host. Kernels are loaded by finish(), those of `device()` when they are recorded are only noted.
class HorizontalFusion : public hal::CommandList {
 public:
  HorizontalFusion(hal::Device& device, hal::CommandList& into);

  // What records commands here loads its kernels from this one.
  hal::Device& device() { return planned_; }

  void dispatch(const std::shared_ptr<hal::Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const hal::Binding> bindings, std::span<const hal::Word> constants,
                const std::string& label) override;
  void copy(const hal::Binding& from, const hal::Binding& to, const std::string& label) override;
  void fill(const hal::Binding& to, hal::Word value, const std::string& label) override;
  void host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                 const std::string& label) override;
  void barrier() override {}  // what touches the same bytes stays in order
  int mark() override;
  void predict(double seconds) override { costs_.predict(seconds); }
  void finish() override;

 private:
  struct Dispatch {
    std::shared_ptr<hal::Executable> executable;
    std::array<std::uint32_t, 3> groups;
    std::vector<hal::Word> constants;
    std::size_t max_fused = 1;  // dispatches of its kernel that a launch may run; 1 = it runs alone
  };
  struct Copy {};
  struct Fill {
    hal::Word value;
  };
  struct HostCall {
    hal::HostFunction function;
  };
  struct Mark {};
  struct Command {
    std::string label;
    std::vector<hal::Binding> bindings;
    std::variant<Dispatch, Copy, Fill, HostCall, Mark> what;
  };

  void add(std::string label, double weight, std::vector<hal::Binding> bindings,
           decltype(Command::what) what);
  // Dispatches of one kernel that wait for others of it. None of those that wait depends on another.
  using Launch = std::vector<std::size_t>;
  static bool is_fence(const Command& command);
  const Dispatch* sharing(std::size_t command) const;  // nullptr where it shares no launch
  std::size_t room(const Launch& launch) const;
  // Adds later dispatches of the kernel, from command `next` on, that depend on none that has not run.
  void add_later(Launch& launch, std::size_t next) const;
  void run(Launch launch, std::size_t next);
  void run_waiting(std::size_t next);
  void record(const Launch& launch);
  void record_one(Command& command);
  void record_fused(const Launch& launch);

  hal::Device& real_;
  PlannedDevice planned_;
  hal::CommandList& into_;
  hal::ListCosts costs_;
  std::vector<Command> commands_;
  std::vector<char> ran_;  // by command
  std::vector<Launch> waiting_;
  int marks_ = 0;
};

}  // namespace meshloom::trainer
