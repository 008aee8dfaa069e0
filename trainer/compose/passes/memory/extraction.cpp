#include "trainer/compose/passes/memory/extraction.h"

#include <set>

#include "hal/error.h"
#include "trainer/compose/graph.h"

namespace meshloom::trainer {
namespace {

using kernels::Role;

// What a value depends on, as bits. What depends on inputs alone, or on parameters alone, any part can make.
enum Dependence : unsigned { kOnInputs = 1, kOnParameters = 2, kOnMore = 4 };

unsigned dependence_of(Role role) {
  switch (role) {
    case Role::input:
    case Role::optimizer:  // in these programs the loss scale, which every stage has
      return kOnInputs;
    case Role::parameter:
      return kOnParameters;
    case Role::state:
    case Role::gradient:
    case Role::cache:
    case Role::parameter_copy:
    case Role::activation:
      break;
  }
  return kOnMore;
}

}  // namespace

std::vector<char> remakable(const kernels::Program& program) {
  std::vector<unsigned> on(program.values.size(), 0);
  for (const kernels::ValueId id : program.inputs) on[at(id)] = dependence_of(program.value(id).role);
  std::vector<char> result;
  for (const kernels::Call& call : program.calls) {
    unsigned all = 0;
    for (const kernels::ValueId id : call.inputs) all |= on[at(id)];
    if (all == (kOnInputs | kOnParameters)) all |= kOnMore;
    for (const kernels::ValueId id : call.outputs) on[at(id)] = all;
    result.push_back((all & kOnMore) == 0);
  }
  return result;
}

Extraction::Extraction(const kernels::Program& source, std::vector<char> keep,
                       const std::vector<char>& remake)
    : source_(source), keep_(std::move(keep)), taken_(keep_), to_(source.values.size(), kernels::kNoValue) {
  std::vector<char> needed(source.values.size(), 0);
  for (std::size_t i = source.calls.size(); i-- > 0;) {
    const kernels::Call& call = source.calls[i];
    if (!taken_[i] && remake[i])
      for (const kernels::ValueId id : call.outputs) taken_[i] = taken_[i] || needed[at(id)];
    if (!taken_[i]) continue;
    for (const kernels::ValueId id : call.inputs) needed[at(id)] = 1;
  }
  result_.name = source.name;
}

void Extraction::input(kernels::ValueId id, const std::string& name) {
  const kernels::ValueId made = copy(id);
  result_.value(made).name = name;
  result_.inputs.push_back(made);
}

void Extraction::run(std::optional<kernels::Phase> again) {
  for (std::size_t i = 0; i < source_.calls.size(); ++i) {
    if (!taken_[i]) continue;
    kernels::Call call = source_.calls[i];
    if (again && !keep_[i]) call.phase = *again;
    for (kernels::ValueId& id : call.inputs) {
      if (!known(id))
        throw hal::Error(
            "program '" + source_.name + "', " + call.op + (call.path.empty() ? "" : " in " + call.path),
            "every value that a part of a program reads must arrive there", "%" + std::to_string(id));
      id = (*this)(id);
    }
    for (kernels::ValueId& id : call.outputs) id = copy(id);
    result_.calls.push_back(std::move(call));
  }
}

std::vector<kernels::ValueId> Extraction::missing() const {
  std::set<kernels::ValueId> defined, missing;
  for (std::size_t i = 0; i < source_.calls.size(); ++i) {
    if (!taken_[i]) continue;
    for (const kernels::ValueId id : source_.calls[i].inputs)
      if (!defined.count(id)) missing.insert(id);
    defined.insert(source_.calls[i].outputs.begin(), source_.calls[i].outputs.end());
  }
  return {missing.begin(), missing.end()};
}

bool Extraction::known(kernels::ValueId id) const { return to_[at(id)] != kernels::kNoValue; }
kernels::ValueId Extraction::operator()(kernels::ValueId id) const { return to_[at(id)]; }

kernels::ValueId Extraction::copy(kernels::ValueId id) {
  to_[at(id)] = static_cast<kernels::ValueId>(result_.values.size());
  result_.values.push_back(source_.value(id));
  return to_[at(id)];
}

}  // namespace meshloom::trainer
