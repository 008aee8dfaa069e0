#include "trainer/run/stored_run.h"

#include <fmt/format.h>

#include <memory>
#include <set>

#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/checkpoint/model_tensors.h"
#include "trainer/checkpoint/non_finite.h"

namespace meshloom::trainer {
namespace {

using Note = std::function<void(const std::string&)>;

// Persistent values a checkpoint holds besides the model: optimizer and other state that outlives a step. What a step
// reports is none.
std::vector<NamedTensor> state_tensors(const Plan& plan) {
  std::set<std::string> names, of_model;
  for (const auto& [name, type] : plan.states) of_model.insert(name);
  for (const auto& [program, planned] : plan.programs)
    for (const kernels::Value& value : planned.program.values)
      if ((value.role == kernels::Role::optimizer || value.role == kernels::Role::state) &&
          plan.persistent.count(value.name) && !value.name.starts_with("accumulate/") &&
          !of_model.count(value.name) && !plan.metrics.count(value.name))
        names.insert(value.name);
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, plan.persistent_types.at(name)});
  return tensors;
}

// Tells `found` of a value of the plan.
void look_at(const Plan& plan, const std::string& name, std::span<const std::byte> data, NonFiniteCounter& found) {
  // What is packed while it is loaded is not among the plan's values yet, and is f32.
  const auto type = plan.persistent_types.find(name);
  found.look_at(name, type == plan.persistent_types.end() ? hal::DType::f32 : type->second.dtype, data);
}

void require_finite(const NonFiniteCounter& found, const std::string& where) {
  if (found.count() > 0) throw Error(where, "a run starts from values that are finite", found.text());
}

}  // namespace

CheckpointContents contents_of(Session& session, const StoredRecipe& recipe, const RunState& state,
                               const std::string& reason) {
  CheckpointContents contents;
  contents.model = model_tensors(session.plan());
  contents.optimizer = state_tensors(session.plan());
  put(recipe, contents);
  contents.state = to_json(state);
  const auto found = std::make_shared<NonFiniteCounter>();
  contents.read = [&session, found](const std::string& name, std::span<std::byte> into) {
    session.read(name, into);
    look_at(session.plan(), name, into, *found);
  };
  contents.unhealthy = [found, reason] {
    return reason.empty() && found->count() > 0 ? "it has " + found->text() : reason;
  };
  return contents;
}

RunState resume_from(const Checkpoint& checkpoint, const TrainerConfig& config, const RunState& now,
                     bool allow_rounding, Session& session, const layers::ClassTable& classes,
                     const Note& note) {
  const std::string where = "checkpoint '" + checkpoint.path + "'";
  RunState state = parse_run_state(checkpoint.state, "'" + checkpoint.path + "/state.json'");
  if (state.step != checkpoint.step)
    throw Error("'" + checkpoint.path + "/state.json'",
                fmt::format("must be of step {}, as the manifest is", checkpoint.step),
                fmt::format("step {}", state.step));
  const TrainerConfig then = recipe_of(checkpoint, classes);
  std::vector<std::string> changes = check_same_run(then, config, where);
  for (std::string& change : differences(state.machine, now.machine)) changes.push_back(std::move(change));
  if (!changes.empty() && !allow_rounding)
    throw Error(where,
                "a run goes on where its bits stay the same; --allow-rounding goes on all the same, with "
                "results that "
                "are equal but for rounding",
                hal::join(changes));
  for (const std::string& change : changes)
    note("resumes with another " + change + "; equal but for rounding");
  if (state.data != now.data || state.data_tokens != now.data_tokens)
    throw Error(where,
                fmt::format("a run goes on with the text it was started with ({} training tokens, xxhash64 "
                            "{:016x})",
                            state.data_tokens, state.data),
                fmt::format("{} tokens, {:016x}", now.data_tokens, now.data));
  if (checkpoint.optimizer.tensors().empty())
    throw Error(where, "--resume needs the optimizer's state; a run from parameters alone starts with --init",
                "parameters only");
  std::vector<NamedTensor> optimizer = state_tensors(session.plan());
  std::set<std::string> reports;  // checkpoints of older versions hold them
  for (const char* name : {"metrics", "eval/metrics"}) {
    const StoredTensor* stored = checkpoint.optimizer.find(name);
    if (stored && reports.insert(name).second)
      optimizer.push_back({name, {kernels::DType::f32, stored->shape}});
  }
  NonFiniteCounter found;
  const auto write = [&](const std::string& name, std::span<const std::byte> data) {
    if (reports.count(name)) return;
    look_at(session.plan(), name, data, found);
    session.write(name, data);
  };
  load_tensors(checkpoint.model, model_tensors(session.plan()), write);
  load_tensors(checkpoint.optimizer, optimizer, write);
  require_finite(found, where);
  state.hardware = now.hardware;
  state.machine = now.machine;
  return state;
}

void start_from(const Checkpoint& checkpoint, Session& session, const Note& note) {
  std::vector<NamedTensor> wanted = model_tensors(session.plan());
  std::set<std::string> adapters;  // a checkpoint without any of them leaves them as they start
  bool stored = false;
  for (const layers::ParameterInfo& parameter : session.plan().parameters) {
    if (!parameter.adapter) continue;
    adapters.insert(parameter.path);
    stored |= checkpoint.model.find(parameter.path) != nullptr;
  }
  if (!stored)
    std::erase_if(wanted, [&](const NamedTensor& tensor) { return adapters.count(tensor.name) > 0; });
  NonFiniteCounter found;
  const Unpacked unpacked(
      checkpoint.model, session.plan().parameters,
      [&](const std::string& name, std::span<const std::byte> data) { session.write(name, data); });
  if (unpacked.count() > 0)
    note(fmt::format("{} tensors of '{}' are quantised", unpacked.count(), checkpoint.path));
  load_model(
      checkpoint.model, unpacked.wanted(std::move(wanted)),
      [&](const std::string& name, std::span<const std::byte> data) {
        look_at(session.plan(), name, data, found);
        unpacked.write(name, data);
      },
      note);
  require_finite(found, "checkpoint '" + checkpoint.path + "'");
}

}  // namespace meshloom::trainer
