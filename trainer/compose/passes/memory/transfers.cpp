#include "trainer/compose/passes/memory/transfers.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "trainer/compose/graph.h"

namespace meshloom::trainer {
namespace {

using hal::MemoryKind;
using kernels::Call;
using kernels::Program;
using kernels::ValueId;

class Scheduler {
 public:
  Scheduler(Program& program, const kernels::Catalog& catalog)
      : program_(program), graph_(program), time_(program.calls.size(), 0), moves_(program.calls.size(), 0) {
    double now = 0;
    for (std::size_t i = 0; i < program.calls.size(); ++i) {
      moves_[i] = program.calls[i].op == "transfer" || adds_to_sum(program.calls[i]);
      time_[i] = now;
      if (!moves_[i] && !catalog.contract(program.calls[i].op).view) ++now;
    }
  }

  void run() {
    for (std::size_t i = 0; i < program_.calls.size(); ++i)
      if (moves_[i] && program_.calls[i].op != "transfer") time_[i] = defined(program_.calls[i]) + 0.25;
    for (std::size_t i = 0; i < program_.calls.size(); ++i)
      if (to(i, MemoryKind::host)) time_[i] = defined(program_.calls[i]) + kTransferDelay + 0.5;
    for (std::size_t i = 0; i < program_.calls.size(); ++i)
      if (to(i, MemoryKind::device)) bring_back(i);
    std::vector<std::size_t> order(program_.calls.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return time_[a] < time_[b]; });
    std::vector<Call> calls;
    for (const std::size_t i : order) calls.push_back(std::move(program_.calls[i]));
    program_.calls = std::move(calls);
  }

 private:
  bool to(std::size_t index, MemoryKind memory) const {
    const Call& call = program_.calls[index];
    return call.op == "transfer" && program_.value(call.outputs[0]).memory == memory;
  }

  // An input that a transfer brought from the host's persistent memory.
  bool fetched(ValueId id) const {
    const int definition = graph_.definition_of(id);
    return definition >= 0 && to(at(definition), MemoryKind::device) &&
           graph_.definition_of(program_.calls[at(definition)].inputs[0]) == kInputDefinition;
  }

  bool adds_to_sum(const Call& call) const {
    return call.op == "elementwise" &&
           std::any_of(call.inputs.begin(), call.inputs.end(), [&](ValueId id) { return fetched(id); });
  }

  // When the inputs are known, but for those that are fetched.
  double defined(const Call& call) const {
    double time = 0;
    for (const ValueId id : call.inputs)
      if (const int definition = graph_.definition_of(id); definition >= 0 && !fetched(id))
        time = std::max(time, time_[at(definition)]);
    return time;
  }

  void bring_back(std::size_t index) {
    const Call& call = program_.calls[index];
    double reader = std::numeric_limits<double>::infinity();
    for (const int i : graph_.readers_of(call.outputs[0])) reader = std::min(reader, time_[at(i)]);
    const int definition = graph_.definition_of(call.inputs[0]);
    double before = definition < 0 ? -1 : time_[at(definition)];
    if (before + 0.25 >= reader) {  // there and back at once
      before = defined(program_.calls[at(definition)]) + 0.3;
      time_[at(definition)] = before;
    }
    time_[index] = std::max(before + 0.1, reader - kTransferAhead + 0.5);
  }

  Program& program_;
  Graph graph_;
  std::vector<double>
      time_;                 // by call: the number of calls that take time before it, or between two of these
  std::vector<char> moves_;  // by call
};

}  // namespace

ValueId append_transfer(Program& program, ValueId id, MemoryKind memory, kernels::Phase phase,
                        std::string path, std::vector<Call>& calls) {
  const ValueId copy = static_cast<ValueId>(program.values.size());
  kernels::Value value = program.value(id);
  value.memory = memory;
  program.values.push_back(std::move(value));
  Call call;
  call.op = "transfer";
  call.inputs = {id};
  call.outputs = {copy};
  call.attrs.set("memory", std::string(to_string(memory)));
  call.path = std::move(path);
  call.phase = phase;
  calls.push_back(std::move(call));
  return copy;
}

Program schedule_transfers(Program program, const kernels::Catalog& catalog) {
  if (std::any_of(program.calls.begin(), program.calls.end(),
                  [](const Call& call) { return call.op == "transfer"; }))
    Scheduler(program, catalog).run();
  return program;
}

}  // namespace meshloom::trainer
