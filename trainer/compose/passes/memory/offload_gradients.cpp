#include "trainer/compose/passes/memory/offload_gradients.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "kernels/transfer/transfer.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/rule_pattern.h"

namespace meshloom::trainer {
namespace {

using hal::MemoryKind;
using kernels::Call;
using kernels::Phase;
using kernels::Program;
using kernels::Role;
using kernels::ValueId;

class GradientOffloader {
 public:
  GradientOffloader(Program& program, const kernels::Catalog& catalog)
      : program_(program),
        catalog_(catalog),
        graph_(program),
        roots_(view_roots(program, catalog)),
        early_(program.calls.size(), -1) {}

  // Returns whether there was any.
  bool run(const OffloadLimits& limits) {
    find(limits);
    if (on_host_.empty()) return false;
    std::map<int, std::vector<int>> after;  // by call: those of the update that move there
    for (std::size_t i = 0; i < early_.size(); ++i)
      if (early_[i] >= 0) after[early_[i]].push_back(static_cast<int>(i));
    std::vector<Call> calls;
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      if (early_[i] >= 0) continue;
      Call call = program_.calls[i];
      if (call.phase == Phase::update)
        for (ValueId& id : call.inputs) id = fetched(id, calls);
      const std::vector<ValueId> defined = call.outputs;
      calls.push_back(std::move(call));
      for (const int moved : after[static_cast<int>(i)]) calls.push_back(program_.calls[at(moved)]);
      for (const ValueId id : defined)
        if (const auto found = on_host_.find(id); found != on_host_.end())
          found->second = moved(id, MemoryKind::host, calls);
    }
    program_.calls = std::move(calls);
    remove_dead_calls(program_);
    return true;
  }

 private:
  void find(const OffloadLimits& limits) {
    std::map<ValueId, std::vector<int>> readers;  // of the update, by root
    for (std::size_t i = 0; i < program_.calls.size(); ++i)
      if (program_.calls[i].phase == Phase::update && !catalog_.contract(program_.calls[i].op).view)
        for (const ValueId id : program_.calls[i].inputs)
          readers[roots_[at(id)]].push_back(static_cast<int>(i));
    std::vector<char> gradient(program_.values.size(), 0);  // by root
    for (std::size_t v = 0; v < program_.values.size(); ++v)
      if (program_.values[v].role == Role::gradient) gradient[at(roots_[v])] = 1;
    std::vector<int> stays(program_.calls.size() + 1, 0);  // calls before each that do not move
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      const bool moves = program_.calls[i].phase == Phase::update && gradient_alone(i, gradient);
      stays[i + 1] = stays[i] + (moves ? 0 : 1);
    }
    for (const auto& [root, list] : readers) {
      const int definition = graph_.definition_of(root);
      if (!gradient[at(root)] || definition < 0 || program_.calls[at(definition)].phase == Phase::update)
        continue;
      const kernels::TensorType& type = program_.value(root).type;
      if (type.bytes() < limits.bytes || !kernels::transferable(type) || graph_.outlives_program(root))
        continue;
      const auto first = std::find_if(list.begin(), list.end(),
                                      [&](int reader) { return !gradient_alone(at(reader), gradient); });
      if (first == list.end() || stays[at(*first)] - stays[at(definition)] < limits.calls) continue;
      for (const int reader : list) {
        if (!gradient_alone(at(reader), gradient)) continue;
        early_[at(reader)] = definition;
        for (const ValueId id : program_.calls[at(reader)].inputs)
          early_[at(reader)] = std::max(early_[at(reader)], graph_.definition_of(id));
      }
      on_host_[root] = kernels::kNoValue;
    }
  }

  // Whether the call reads one gradient and nothing else.
  bool gradient_alone(std::size_t index, const std::vector<char>& gradient) const {
    const std::vector<ValueId>& inputs = program_.calls[index].inputs;
    return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) {
      return gradient[at(roots_[at(id)])] && roots_[at(id)] == roots_[at(inputs.front())];
    });
  }

  // What the update reads in place of `id`.
  ValueId fetched(ValueId id, std::vector<Call>& calls) {
    if (at(id) >= roots_.size()) return id;
    const ValueId root = roots_[at(id)];
    const auto on_host = on_host_.find(root);
    if (on_host == on_host_.end()) return id;
    const auto [again, fresh] = again_.emplace(id, id);
    if (!fresh) return again->second;
    if (id == root) return again_[id] = moved(on_host->second, MemoryKind::device, calls);
    Call view = program_.calls[at(graph_.definition_of(id))];
    view.phase = Phase::update;
    view.inputs[0] = fetched(view.inputs[0], calls);
    const ValueId copy = static_cast<ValueId>(program_.values.size());
    program_.values.push_back(kernels::Value(program_.value(id)));
    view.outputs = {copy};
    calls.push_back(std::move(view));
    return again_[id] = copy;
  }

  ValueId moved(ValueId id, MemoryKind memory, std::vector<Call>& calls) {
    const Phase phase = memory == MemoryKind::host ? Phase::backward : Phase::update;
    return append_transfer(program_, id, memory, phase, program_.value(id).name, calls);
  }

  Program& program_;
  const kernels::Catalog& catalog_;
  Graph graph_;
  std::vector<ValueId> roots_;          // by value
  std::vector<int> early_;              // by call: the call that it follows now; -1 = it stays
  std::map<ValueId, ValueId> on_host_;  // by root: its copy there
  std::map<ValueId, ValueId> again_;    // by value: what was fetched for it
};

}  // namespace

Program offload_gradients(Program program, const kernels::Catalog& catalog,
                          const std::vector<RematRule>& rules, std::vector<char>* matched,
                          const OffloadLimits& limits) {
  if (matched) matched->assign(rules.size(), 0);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (!Matcher(rules[i].tag, "remat rule " + std::to_string(i + 1))(kGradients)) continue;
    const bool moved =
        rules[i].policy == RematPolicy::offload && GradientOffloader(program, catalog).run(limits);
    if (matched && moved) (*matched)[i] = 1;
    break;
  }
  return program;
}

}  // namespace meshloom::trainer
