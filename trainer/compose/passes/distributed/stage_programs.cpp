// The programs of one part of a pipeline: forward, backward and weights; and what a stage computes of the update.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "hal/error.h"
#include "kernels/collective/collective.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/split/split.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/distributed/convert_spec.h"
#include "trainer/compose/passes/distributed/stages.h"
#include "trainer/compose/passes/memory/donations.h"
#include "trainer/compose/passes/memory/extraction.h"

namespace meshloom::trainer {
namespace {

using kernels::Builder;
using kernels::Call;
using kernels::Phase;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;
using kernels::ValueId;

// A micro-batch goes through these one after another.
enum Pass : int { kForwardPass = 0, kBackwardPass = 1, kWeightsPass = 2, kNoPass = 3 };

class PhaseCut {
 public:
  PhaseCut(const Program& program, const kernels::Catalog& catalog, bool weights,
           const std::vector<std::string>& arriving)
      : program_(program),
        catalog_(catalog),
        weights_(weights),
        arriving_(arriving.begin(), arriving.end()),
        remake_(remakable(program)),
        pass_of_value_(program.values.size(), kNoPass),
        first_(program.values.size(), kNoPass),
        last_(program.values.size(), -1) {
    for (std::size_t i = 0; i < program.calls.size(); ++i)
      remake_[i] = remake_[i] || catalog.contract(program.calls[i].op).view;
  }

  PhasePrograms run() {
    assign();
    for (const kernels::Donation& donation : program_.donations) home_[donation.output] = donation.input;
    find_readers();
    PhasePrograms result;
    for (const Step step : {Step::forward, Step::backward, Step::weights})
      if (step != Step::weights || weights_) result.programs.emplace_back(step, program_of(step));
    result.slotted.assign(slotted_.begin(), slotted_.end());
    return result;
  }

 private:
  static Pass pass_of(Step step) {
    return step == Step::forward ? kForwardPass : step == Step::backward ? kBackwardPass : kWeightsPass;
  }
  const kernels::Value& value(ValueId id) const { return program_.value(id); }
  bool is_input(ValueId id) const { return pass_of_value_[at(id)] == kNoPass; }

  void assign() {
    const std::vector<char> late = of_weights_alone();
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      const Call& call = program_.calls[i];
      int pass = call.phase == Phase::forward ? kForwardPass : late[i] ? kWeightsPass : kBackwardPass;
      // Copies of new states belong to the calls that make them.
      if (call.phase == Phase::update && pass == kBackwardPass) {
        int made = -1;
        for (const ValueId id : call.inputs)
          if (!is_input(id)) made = std::max(made, static_cast<int>(pass_of_value_[at(id)]));
        if (made >= 0) pass = made;
      }
      pass_.push_back(pass);
      for (const ValueId id : call.outputs) pass_of_value_[at(id)] = pass;
    }
  }

  // By call: whether it leads to sums of gradients and to nothing else.
  std::vector<char> of_weights_alone() const {
    std::vector<char> late(program_.calls.size(), 0);
    if (!weights_) return late;
    std::set<ValueId> sums;
    for (const kernels::Donation& donation : program_.donations)
      if (const Role role = value(donation.input).role; role == Role::gradient || role == Role::optimizer)
        sums.insert(donation.output);  // the latter: what rounding lost of a gradient
    std::vector<char> needed(program_.values.size(), 0);
    for (const ValueId id : program_.outputs) needed[at(id)] = sums.count(id) == 0;
    for (std::size_t i = program_.calls.size(); i-- > 0;) {
      const Call& call = program_.calls[i];
      late[i] = std::none_of(call.outputs.begin(), call.outputs.end(),
                             [&](ValueId id) { return needed[at(id)] != 0; });
      if (!late[i])
        for (const ValueId id : call.inputs) needed[at(id)] = 1;
    }
    return late;
  }

  // The first and the last pass that reads each value, through what is made again for it.
  void find_readers() {
    for (std::size_t i = program_.calls.size(); i-- > 0;) {
      const Call& call = program_.calls[i];
      int first = pass_[i], last = pass_[i];
      if (remake_[i]) {
        first = kNoPass, last = -1;
        for (const ValueId id : call.outputs) {
          first = std::min<int>(first, first_[at(id)]);
          last = std::max(last, last_[at(id)]);
        }
        // An output of the program, which its own pass makes.
        if (last < 0) first = last = pass_[i];
      }
      for (const ValueId id : call.inputs) {
        first_[at(id)] = std::min<int>(first_[at(id)], first);
        last_[at(id)] = std::max(last_[at(id)], last);
      }
    }
  }

  // A state that the forward pass changes and a later one reads as it was.
  bool is_kept_state(ValueId id) const {
    if (value(id).role != Role::state || last_[at(id)] <= kForwardPass) return false;
    return std::any_of(program_.donations.begin(), program_.donations.end(), [&](const kernels::Donation& d) {
      return d.input == id && pass_of_value_[at(d.output)] == kForwardPass;
    });
  }

  std::string stash_name(ValueId id) const { return "stash/v" + std::to_string(id); }

  // How an input of the program, or what an earlier pass defines, is called in pass `pass`.
  std::string input_name(ValueId id, int pass) {
    std::string name = value(id).name;
    if (is_input(id)) {
      if (is_kept_state(id) && pass > kForwardPass) {
        name = stash_name(id);
        slotted_.insert(name);
      } else if (value(id).role == Role::input) {
        slotted_.insert(name);
      } else if (value(id).role == Role::activation && last_[at(id)] > arrival(id)) {
        slotted_.insert(name);  // it arrives before a pass and is read by a later one
      }
      return name;
    }
    if (!is_pipe(id)) name = stash_name(id);
    slotted_.insert(name);
    return name;
  }

  bool is_pipe(ValueId id) const {
    return value(id).role == Role::activation && value(id).name.starts_with("pipe/");
  }
  int arrival(ValueId id) const { return arriving_.count(value(id).name) ? kForwardPass : kBackwardPass; }

  Program program_of(Step step) {
    const int pass = pass_of(step);
    std::vector<char> keep, remake = remake_;
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      const bool own = pass_[i] == pass;
      const bool output = std::any_of(program_.calls[i].outputs.begin(), program_.calls[i].outputs.end(),
                                      [&](ValueId id) { return is_output(id); });
      keep.push_back(own && (!remake_[i] || output));
    }
    Extraction taken(program_, keep, remake);
    std::vector<ValueId> early;  // states to be kept as they are before this pass
    for (const ValueId id : taken.missing()) taken.input(id, input_name(id, pass));
    for (const ValueId id : program_.inputs) {
      const bool donated = std::any_of(
          program_.donations.begin(), program_.donations.end(),
          [&](const kernels::Donation& d) { return d.input == id && pass_of_value_[at(d.output)] == pass; });
      const bool passes = pass == kForwardPass && last_[at(id)] < 0 && value(id).role == Role::activation;
      if (!taken.known(id) && (donated || passes)) taken.input(id, input_name(id, pass));
      if (pass == kForwardPass && is_kept_state(id)) early.push_back(id);
    }
    taken.run(pass == kForwardPass ? std::nullopt : std::optional(Phase::recompute));
    Program program = std::move(taken.program());
    program.name = to_string(step);
    for (const ValueId id : program_.outputs)
      if (pass_of_value_[at(id)] == pass) program.outputs.push_back(taken(id));
    for (const kernels::Donation& donation : program_.donations)
      if (pass_of_value_[at(donation.output)] == pass)
        program.donations.push_back({taken(donation.input), taken(donation.output)});
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      if (!keep[i] || remake_[i]) continue;
      for (const ValueId id : program_.calls[i].outputs)
        if (last_[at(id)] > pass) keep_for_later(id, taken(id), program);
    }
    keep_states(early, taken, program);
    program = legalize_donations(std::move(program), catalog_);
    remove_dead_calls(program);
    return program;
  }

  bool is_output(ValueId id) const {
    return std::find(program_.outputs.begin(), program_.outputs.end(), id) != program_.outputs.end();
  }

  // An output that later passes read.
  void keep_for_later(ValueId id, ValueId made, Program& program) {
    kernels::Value& kept = program.value(made);
    if (home_.count(id) > 0)
      throw hal::Error("pipeline of program '" + program_.name + "'",
                       "a later pass must not read a state's new value", "'" + kept.name + "'");
    if (is_pipe(id)) {  // which goes to another part as well
      slotted_.insert(kept.name);
      return;
    }
    kept.name = stash_name(id);
    kept.role = Role::activation;
    slotted_.insert(kept.name);
    program.outputs.push_back(made);
  }

  // Copies them before anything else runs.
  void keep_states(const std::vector<ValueId>& early, const Extraction& taken, Program& program) const {
    std::vector<Call> calls;
    for (const ValueId id : early) {
      Builder builder(catalog_, program);
      builder.path = value(id).name;
      const Tensor state = builder.tensor(taken(id));
      const Tensor copy =
          builder.call1("elementwise", {state}, {{"shape", state.shape()}, {"expr", std::string("x0")}});
      builder.name(copy, stash_name(id));
      builder.output(copy);
      calls.push_back(std::move(program.calls.back()));
      program.calls.pop_back();
    }
    program.calls.insert(program.calls.begin(), calls.begin(), calls.end());
  }

  const Program& program_;
  const kernels::Catalog& catalog_;
  bool weights_;
  std::set<std::string> arriving_;
  std::vector<char> remake_;                       // by call
  std::vector<int> pass_;                          // by call
  std::vector<int> pass_of_value_, first_, last_;  // by value: where it is defined, and read
  std::map<ValueId, ValueId> home_;
  std::set<std::string> slotted_;
};

// Writes the program of a stage call by call.
class StageApply {
 public:
  StageApply(const Program& source, const kernels::Catalog& catalog,
             const std::map<std::string, std::vector<int>>& holders, const Topology& mesh)
      : source_(source),
        holders_(holders),
        mesh_(mesh),
        stage_(mesh.place(AxisName::pipeline)),
        builder_(catalog, result_),
        owner_(source.values.size(), kEvery),
        owner_of_call_(source.calls.size(), kEvery),
        to_(source.values.size(), kernels::kNoValue) {
    result_.name = source.name;
  }

  Program run() {
    find_owners();
    find_shared();
    for (const ValueId id : source_.inputs)
      if (owner_[at(id)] == kEvery || holds(source_.value(id).name)) {
        to_[at(id)] = copy(id);
        result_.inputs.push_back(to_[at(id)]);
      }
    std::vector<char> defined(source_.values.size(), 0);
    for (const ValueId id : source_.inputs) defined[at(id)] = 1;
    for (std::size_t i = 0; i < source_.calls.size(); ++i) {
      const Call& call = source_.calls[i];
      for (const ValueId id : call.inputs)
        if (owner_[at(id)] != kEvery && owner_[at(id)] != owner_of_call_[i] && !shared_.count(id))
          share(defined, call);
      for (const ValueId id : call.outputs) defined[at(id)] = 1;
      if (owner_of_call_[i] == kEvery || owner_of_call_[i] == stage_) emit(call, owner_of_call_[i]);
    }
    finish();
    return std::move(result_);
  }

 private:
  static constexpr int kEvery = -1;

  // The stage that computes with a value at rest.
  int owner_of(const std::string& name) const {
    const auto found = holders_.find(name);
    return found == holders_.end() ? kEvery : found->second.front();
  }
  bool holds(const std::string& name) const {
    const auto found = holders_.find(name);
    return found == holders_.end() ||
           std::find(found->second.begin(), found->second.end(), stage_) != found->second.end();
  }

  void find_owners() {
    for (const ValueId id : source_.inputs) owner_[at(id)] = owner_of(source_.value(id).name);
    std::map<ValueId, int> decided;  // of outputs: where they must be
    for (const ValueId id : source_.outputs) decided[id] = kEvery;
    for (const kernels::Donation& donation : source_.donations)
      decided[donation.output] = owner_[at(donation.input)];
    for (std::size_t i = 0; i < source_.calls.size(); ++i) {
      const Call& call = source_.calls[i];
      std::set<int> owners;
      for (const ValueId id : call.inputs)
        if (owner_[at(id)] != kEvery) owners.insert(owner_[at(id)]);
      int owner = owners.size() == 1 ? *owners.begin() : kEvery;
      if (!call.inputs.empty())
        for (const ValueId id : call.outputs)
          if (const auto found = decided.find(id); found != decided.end()) owner = found->second;
      owner_of_call_[i] = owner;
      for (const ValueId id : call.outputs) owner_[at(id)] = owner;
    }
  }

  // The values that calls of another stage, or of every stage, read.
  void find_shared() {
    for (std::size_t i = 0; i < source_.calls.size(); ++i)
      for (const ValueId id : source_.calls[i].inputs)
        if (owner_[at(id)] != kEvery && owner_[at(id)] != owner_of_call_[i]) wanted_.insert(id);
  }

  ValueId copy(ValueId id) {
    result_.values.push_back(source_.value(id));
    return static_cast<ValueId>(result_.values.size()) - 1;
  }

  // Every stage gets the wanted values that are known by now, all in one exchange.
  void share(const std::vector<char>& defined, const Call& reader) {
    std::vector<std::vector<ValueId>> given(static_cast<std::size_t>(mesh_.size(AxisName::pipeline)));
    for (const ValueId id : wanted_)
      if (defined[at(id)] && !shared_.count(id)) {
        const kernels::TensorType& type = source_.value(id).type;
        if (type.dtype != kernels::DType::f32 || type.elements() != 1)
          throw hal::Error("pipeline of program '" + source_.name + "', " + reader.op + " in " + reader.path,
                           "stages share single numbers only", to_string(type));
        given[at(owner_[at(id)])].push_back(id);
      }
    builder_.path = "pipeline/gather" + std::to_string(gathers_++);  // each moves alone
    builder_.phase = Phase::update;
    std::vector<Tensor> own;
    std::vector<std::int64_t> sizes;
    std::int64_t all = 0;
    for (const std::vector<ValueId>& ids : given) {
      sizes.push_back(static_cast<std::int64_t>(ids.size()));
      all += sizes.back();
    }
    for (const ValueId id : given[at(stage_)]) own.push_back(reshaped(builder_.tensor(to_[at(id)]), {1}));
    const Tensor part = own.empty() ? kernels::constant(builder_, 0.0, {1}) : kernels::stack(own);
    const Tensor gathered =
        kernels::all_gather(part, {to_string(AxisSet(AxisName::pipeline)), stage_}, std::move(sizes), {all});
    const std::vector<Tensor> numbers = kernels::split(gathered, 1);
    std::size_t next = 0;
    for (const std::vector<ValueId>& ids : given)
      for (const ValueId id : ids)
        shared_[id] = kernels::reshape(numbers.at(next++), source_.value(id).type.shape).id;
  }

  void emit(Call call, int owner) {
    for (ValueId& id : call.inputs)
      id = owner_[at(id)] == kEvery || owner_[at(id)] == owner ? to_[at(id)] : shared_.at(id);
    for (ValueId& id : call.outputs) id = to_[at(id)] = copy(id);
    result_.calls.push_back(std::move(call));
  }

  void finish() {
    std::map<ValueId, ValueId> home;
    for (const kernels::Donation& donation : source_.donations) home[donation.output] = donation.input;
    for (const ValueId id : source_.outputs) {
      const auto found = home.find(id);
      if (to_[at(id)] == kernels::kNoValue ||
          (found != home.end() && !holds(source_.value(found->second).name)))
        continue;
      result_.outputs.push_back(to_[at(id)]);
      if (found != home.end()) result_.donations.push_back({to_[at(found->second)], to_[at(id)]});
    }
    remove_dead_calls(result_);
    // What a copy of a parameter does not read here comes from its own stage.
    std::set<ValueId> read(result_.outputs.begin(), result_.outputs.end());
    for (const Call& call : result_.calls) read.insert(call.inputs.begin(), call.inputs.end());
    for (const kernels::Donation& donation : result_.donations) read.insert(donation.input);
    std::erase_if(result_.inputs, [&](ValueId id) { return !read.count(id); });
  }

  const Program& source_;
  const std::map<std::string, std::vector<int>>& holders_;
  const Topology& mesh_;
  int stage_;
  Program result_;
  Builder builder_;
  std::vector<int> owner_, owner_of_call_;  // by value, by call: a stage, or kEvery
  std::vector<ValueId> to_;
  int gathers_ = 0;
  std::set<ValueId> wanted_;
  std::map<ValueId, ValueId> shared_;  // in the result
};

}  // namespace

PhasePrograms cut_by_phase(const Program& program, const kernels::Catalog& catalog, bool weights,
                           const std::vector<std::string>& arriving) {
  return PhaseCut(program, catalog, weights, arriving).run();
}

Program in_slot(Program program, const std::vector<std::string>& slotted, int chunk, int slot) {
  const std::set<std::string> own(slotted.begin(), slotted.end());
  for (const std::vector<ValueId>* ids : {&program.inputs, &program.outputs})
    for (const ValueId id : *ids)
      if (std::string& name = program.value(id).name; own.count(name)) name = name_in_slot(name, chunk, slot);
  program.name = name_in_slot(program.name, chunk, slot);
  return program;
}

Program apply_of_stage(const Program& program, const kernels::Catalog& catalog,
                       const std::map<std::string, std::vector<int>>& holders, const Topology& mesh) {
  return StageApply(program, catalog, holders, mesh).run();
}

}  // namespace meshloom::trainer
