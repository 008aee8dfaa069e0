#include "trainer/execute/reordered_commands.h"

#include <utility>

#include "hal/binding.h"
#include "hal/inspection.h"

namespace meshloom::trainer {

using hal::Binding;

ReorderedCommands::ReorderedCommands(hal::Device& device, hal::CommandList& into)
    : real_(device), into_(into), planned_(device.info()) {}

void ReorderedCommands::add(std::string label, double weight, std::vector<Binding> bindings,
                            decltype(Command::what) what) {
  costs_.add(weight, 1);
  commands_.push_back({std::move(label), std::move(bindings), std::move(what)});
}

void ReorderedCommands::dispatch(const std::shared_ptr<hal::Executable>& executable,
                                 std::array<std::uint32_t, 3> groups, std::span<const Binding> bindings,
                                 std::span<const hal::Word> constants, const std::string& label) {
  add(label, hal::invocations(executable->spec().workgroup, groups), {bindings.begin(), bindings.end()},
      Dispatch{executable, groups, {constants.begin(), constants.end()}});
}

void ReorderedCommands::copy(const Binding& from, const Binding& to, const std::string& label) {
  add(label, static_cast<double>(from.bytes) / hal::kBytesPerInvocation, {hal::reads(from), hal::writes(to)},
      Copy{});
}

void ReorderedCommands::fill(const Binding& to, hal::Word value, const std::string& label) {
  add(label, static_cast<double>(to.bytes) / hal::kBytesPerInvocation, {hal::writes(to)}, Fill{value});
}

void ReorderedCommands::host_call(hal::HostFunction function, std::span<const Binding> bindings,
                                  const std::string& label) {
  add(label, 0, {bindings.begin(), bindings.end()}, HostCall{std::move(function)});
}

int ReorderedCommands::mark() {
  add("", 0, {}, Mark{});
  return marks_++;
}

void ReorderedCommands::finish() {
  costs_.close();
  schedule();
}

bool ReorderedCommands::is_fence(std::size_t i) const {
  return std::holds_alternative<HostCall>(commands_[i].what) ||
         std::holds_alternative<Mark>(commands_[i].what);
}

bool ReorderedCommands::conflict(std::size_t i, std::size_t k) const {
  for (const Binding& a : commands_[i].bindings)
    for (const Binding& b : commands_[k].bindings)
      if (hal::conflict(a, b)) return true;
  return false;
}

void ReorderedCommands::record(std::size_t i) {
  Command& command = commands_[i];
  if (const auto* dispatch = std::get_if<Dispatch>(&command.what))
    into_.dispatch(real_.load(dispatch->executable->spec()), dispatch->groups, command.bindings,
                   dispatch->constants, command.label);
  else if (std::holds_alternative<Copy>(command.what))
    into_.copy(command.bindings[0], command.bindings[1], command.label);
  else if (const auto* fill = std::get_if<Fill>(&command.what))
    into_.fill(command.bindings[0], fill->value, command.label);
  else if (auto* call = std::get_if<HostCall>(&command.what))
    into_.host_call(std::move(call->function), command.bindings, command.label);
  else
    into_.mark();
}

}  // namespace meshloom::trainer
