// Commands of a list that are noted first and recorded in another order. Of two of which one writes what the other touches, the first
// stays the first, and none passes a mark or a call of the host.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "hal/device.h"
#include "hal/submission.h"
#include "trainer/execute/planned_device.h"

namespace meshloom::trainer {

// Takes commands in their order, and finish() records them in `into`, which stays open, in the order that a class derived from this one
// chooses. Kernels are loaded by finish(), those of `device()` when they are recorded are only noted.
class ReorderedCommands : public hal::CommandList {
 public:
  ReorderedCommands(hal::Device& device, hal::CommandList& into);

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

 protected:
  struct Dispatch {
    std::shared_ptr<hal::Executable> executable;
    std::array<std::uint32_t, 3> groups;
    std::vector<hal::Word> constants;
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

  // Records every command once.
  virtual void schedule() = 0;

  std::size_t size() const { return commands_.size(); }
  const Command& command(std::size_t i) const { return commands_[i]; }
  const Dispatch* dispatch(std::size_t i) const { return std::get_if<Dispatch>(&commands_[i].what); }
  bool is_fence(std::size_t i) const;  // a mark or a call of the host
  // Whether one of both writes what the other touches.
  bool conflict(std::size_t i, std::size_t k) const;
  double predicted_seconds(std::size_t i) const { return costs_.commands()[i].seconds; }
  // Records a command as it was noted.
  void record(std::size_t i);

  hal::Device& real_;
  hal::CommandList& into_;

 private:
  void add(std::string label, double weight, std::vector<hal::Binding> bindings,
           decltype(Command::what) what);

  PlannedDevice planned_;
  hal::ListCosts costs_;
  std::vector<Command> commands_;
  int marks_ = 0;
};

}  // namespace meshloom::trainer
