#include "trainer/compose/memory/storage.h"

#include <algorithm>
#include <map>
#include <utility>

#include "hal/error.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/memory/donations.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Program;
using kernels::Role;
using kernels::ValueId;

class Assigner {
 public:
  Assigner(const Program& program, const kernels::Catalog& catalog, Storage& storage)
      : program_(program),
        catalog_(catalog),
        storage_(storage),
        graph_(program),
        roots_(view_roots(program, catalog)),
        last_(program.values.size(), -1) {
    storage_.unit_of.assign(program.values.size(), -1);
    for (std::size_t v = 0; v < roots_.size(); ++v)
      for (const int reader : graph_.readers[v])
        last_[at(roots_[v])] = std::max(last_[at(roots_[v])], read_by(reader));
  }

  void run() {
    for (ValueId id : program_.inputs) {
      unit_of(id) = add(persistent_unit(id, program_.value(id).name));
      held_[unit_of(id)] = id;
    }
    find_outputs();
    for (std::size_t i = 0; i < program_.calls.size(); ++i) call(static_cast<int>(i));
  }

 private:
  // A collective has read its inputs when the call in front of which it starts runs.
  int read_by(int call) const {
    const int starts = program_.calls[at(call)].starts;
    return starts < 0 ? call : starts;
  }

  int& unit_of(ValueId id) { return storage_.unit_of[at(id)]; }

  int add(StorageUnit unit) {
    storage_.units.push_back(std::move(unit));
    return static_cast<int>(storage_.units.size()) - 1;
  }

  [[noreturn]] void fail(const std::string& rule, const std::string& found) const {
    throw hal::Error("memory plan of program '" + program_.name + "'", rule, found);
  }

  StorageUnit persistent_unit(ValueId id, const std::string& name) const {
    if (name.empty()) fail("inputs and outputs must have names", "%" + std::to_string(id));
    return {name,
            program_.value(id).type,
            program_.value(id).role,
            name,
            0,
            static_cast<int>(program_.calls.size()),
            program_.value(id).memory};
  }

  // By value: the root whose persistent storage it must have, which is a donated input or itself.
  void find_outputs() {
    for (const kernels::Donation& donation : program_.donations)
      home_[donation.output] = unit_of(donation.input);
    for (ValueId id : program_.outputs) {
      const ValueId root = roots_[at(id)];
      if (home_.count(id)) continue;
      if (graph_.definition_of(root) < 0 || home_.count(root))
        fail("an output must have storage of its own",
             "'" + program_.value(id).name + "' is another value's");
      home_[root] = add(persistent_unit(id, program_.value(id).name));
    }
  }

  void call(int index) {
    const Call& call = program_.calls[at(index)];
    if (catalog_.contract(call.op).view) {
      unit_of(call.outputs[0]) = unit_of(call.inputs[0]);
      return;
    }
    std::vector<int> taken;  // the units that outputs of this call write
    for (std::size_t k = 0; k < call.outputs.size(); ++k) {
      const ValueId id = call.outputs[k];
      const int last = std::max(last_[at(id)], index);
      const auto home = home_.find(id);
      if (home != home_.end()) {
        check_home(index, static_cast<int>(k), home->second);
        unit_of(id) = home->second;
        taken.push_back(home->second);
        continue;
      }
      const int reused = reusable(index, static_cast<int>(k), taken);
      if (reused >= 0) {
        StorageUnit& unit = storage_.units[at(reused)];
        unit.last = last;
        // What a sum of gradients is added up in is reported with the gradients.
        if (program_.value(id).role == Role::gradient) unit.role = Role::gradient;
        unit_of(id) = reused;
      } else {
        const kernels::Value& value = program_.value(id);
        unit_of(id) =
            add({"", value.type, value.role,
                 value.name.empty() ? call.path + (call.path.empty() ? "" : " ") + call.op : value.name,
                 index, last, value.memory});
      }
      taken.push_back(unit_of(id));
    }
  }

  // A transient input whose last reader this call is and whose storage output `output` may reuse; -1 = none. The contract lists
  // the better choice first.
  int reusable(int index, int output, const std::vector<int>& taken) const {
    const Call& call = program_.calls[at(index)];
    const kernels::TensorType& type = program_.value(call.outputs[at(output)]).type;
    const kernels::CallTypes types(program_, call);
    for (const auto& [input, written] : catalog_.contract(call.op).in_place(types.view(call))) {
      if (written != output) continue;
      const int candidate = storage_.unit_of[at(call.inputs[at(input)])];
      const StorageUnit& unit = storage_.units[at(candidate)];
      if (!unit.persistent.empty() || unit.last != index || unit.type.bytes() != type.bytes() ||
          unit.memory != program_.value(call.outputs[at(output)]).memory)
        continue;
      if (std::find(taken.begin(), taken.end(), candidate) != taken.end()) continue;
      if (writes_in_place(program_, call, output, catalog_, storage_.unit_of, candidate)) return candidate;
    }
    return -1;
  }

  void check_home(int index, int output, int unit) const {
    const Call& call = program_.calls[at(index)];
    // Only a program input can already have this storage: views count as reads of their roots.
    const auto held = held_.find(unit);
    if (held == held_.end() || last_[at(held->second)] < index) return;
    const bool in_place = last_[at(held->second)] == index &&
                          writes_in_place(program_, call, output, catalog_, storage_.unit_of, unit);
    if (!in_place)
      fail("a donated input must not be read after its storage was overwritten",
           "'" + program_.value(held->second).name + "' by " + call.op + " in " + call.path);
  }

  const Program& program_;
  const kernels::Catalog& catalog_;
  Storage& storage_;
  Graph graph_;
  std::vector<ValueId> roots_;
  std::vector<int> last_;        // by root: the last reader through any view, -1 = none
  std::map<ValueId, int> home_;  // by root
  std::map<int, ValueId> held_;  // by unit: the input that it holds
};

}  // namespace

Storage::Storage(const Program& program, const kernels::Catalog& catalog) {
  Assigner(program, catalog, *this).run();
}

std::string memory_class(Role role) {
  switch (role) {
    case Role::input:
      return "inputs";
    case Role::parameter:
      return "parameters";
    case Role::optimizer:
      return "optimizer";
    case Role::state:
      return "state";
    case Role::gradient:
      return "gradients";
    case Role::cache:
      return "cache";
    case Role::parameter_copy:
      return "parameter_copies";
    case Role::activation:
      return "activations";
  }
  return "?";
}

}  // namespace meshloom::trainer
