#include "trainer/run/state/stored_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/checkpoint/model_tensors.h"
#include "trainer/checkpoint/non_finite.h"
#include "trainer/compose/passes/distributed/compressed_gradients.h"

namespace meshloom::trainer {
namespace {

using Note = std::function<void(const std::string&)>;

// Counts the non-finite elements of a value of the plan.
void add_values(const Plan& plan, const std::string& name, std::span<const std::byte> data,
                NonFiniteCounter& found) {
  // A tensor that is quantized while it is loaded is not among the plan's values, and is f32, as are 16-bit ones of that size.
  const bool known = plan.persistent_types.count(name) > 0;
  const bool is_stored =
      known && (static_cast<std::size_t>(plan.whole_type(name).bytes()) == data.size() ||
                static_cast<std::size_t>(plan.persistent_types.at(name).bytes()) == data.size());
  found.add_values(name, is_stored ? plan.whole_type(name).dtype : hal::DType::f32, data);
}

void require_finite(const NonFiniteCounter& found, const std::string& where) {
  if (found.count() > 0) throw Error(where, "a run must start from finite values", found.text());
}

}  // namespace

std::vector<NamedTensor> state_tensors(const Plan& plan) {
  std::set<std::string> names, of_model;
  for (const NamedTensor& tensor : model_tensors(plan)) of_model.insert(tensor.name);
  for (const auto& [step, planned] : plan.steps.programs)
    for (const kernels::Value& value : planned.program.values)
      if ((value.role == kernels::Role::optimizer || value.role == kernels::Role::state) &&
          plan.persistent_types.count(value.name) && !value.name.starts_with("accumulate/") &&
          !of_model.count(value.name) && !plan.metrics.count(value.name))
        names.insert(value.name);
  for (const auto& [name, division] : plan.divided)  // of other stages
    if (!division.stages.empty() && !of_model.count(name)) names.insert(name);
  for (const std::string& name : plan.shared) names.insert(island_name(name));
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, plan.whole_type(name)});
  return tensors;
}

CheckpointContents contents_of(const Plan& plan, const ReadValue& read, const StoredRecipe& recipe,
                               const RunState& state, const std::string& reason) {
  CheckpointContents contents;
  contents.model = model_tensors(plan);
  contents.optimizer = state_tensors(plan);
  put(recipe, contents);
  contents.state = to_json(state);
  const auto found = std::make_shared<NonFiniteCounter>();
  contents.read = [&plan, read, found](const std::string& name, std::span<std::byte> into) {
    read(name, into);
    add_values(plan, name, into, *found);
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
  Machine machine = now.machine;
  // Over another mesh every rank computes something else.
  if (std::any_of(changes.begin(), changes.end(), [](const auto& one) { return one.starts_with("mesh."); }))
    machine.ranks.clear();
  for (std::string& change : differences(state.machine, machine)) changes.push_back(std::move(change));
  if (!changes.empty() && !allow_rounding)
    throw Error(
        where,
        "a run continues only where its bits stay the same; --allow-rounding continues it all the same, "
        "with results that differ by rounding",
        hal::join(changes));
  for (const std::string& change : changes)
    note("resumes with another " + change + "; results differ by rounding");
  if (state.data != now.data || state.data_tokens != now.data_tokens)
    throw Error(where,
                fmt::format("a run continues with the text that it was started with ({} training tokens, "
                            "xxhash64 {:016x})",
                            state.data_tokens, state.data),
                fmt::format("{} tokens, {:016x}", now.data_tokens, now.data));
  if (checkpoint.optimizer.tensors().empty())
    throw Error(where, "--resume needs the optimizer's state; --init starts a new run from parameters alone",
                "parameters only");
  std::vector<NamedTensor> optimizer = state_tensors(session.plan());
  // What rounding lost of gradients is of the ranks that sent them: over another mesh it starts at zero.
  const auto other_ranks = [&](const NamedTensor& tensor) {
    const StoredTensor* stored = checkpoint.optimizer.find(tensor.name);
    return tensor.name.starts_with(kGradientError) && (!stored || stored->shape != tensor.type.shape);
  };
  std::erase_if(optimizer, other_ranks);
  // What is not read: that, and metrics, which checkpoints of older versions hold.
  std::set<std::string> read, unread;
  bool forgotten = false;
  for (const NamedTensor& tensor : optimizer) read.insert(tensor.name);
  for (const StoredTensor& stored : checkpoint.optimizer.tensors()) {
    const bool error = stored.name.starts_with(kGradientError);
    if (read.count(stored.name) || !(error || stored.name == "metrics" || stored.name == "eval/metrics"))
      continue;
    unread.insert(stored.name);
    optimizer.push_back({stored.name, {kernels::DType::f32, stored.shape}});
    forgotten |= error;
  }
  if (forgotten) note("what rounding lost of gradients is not carried over, because other ranks had it");
  NonFiniteCounter found;
  const auto write = [&](const std::string& name, std::span<const std::byte> data) {
    if (unread.count(name)) return;
    add_values(session.plan(), name, data, found);
    session.write(name, data);
  };
  const PartOf part = [&](const std::string& name) {
    return unread.count(name) ? whole_layout({kernels::DType::f32, checkpoint.optimizer.find(name)->shape})
                              : session.plan().layout(name, session.plan().mesh.rank());
  };
  load_tensors(checkpoint.model, model_tensors(session.plan()), write, false, part);
  load_tensors(checkpoint.optimizer, optimizer, write, false, part);
  require_finite(found, where);
  state.hardware = now.hardware;
  state.machine = now.machine;
  return state;
}

void start_from(const Checkpoint& checkpoint, Session& session, const Note& note) {
  std::vector<NamedTensor> wanted = model_tensors(session.plan());
  std::set<std::string> adapters;  // they keep their initial values when the checkpoint has none of them
  bool stored = false;
  for (const layers::ParameterInfo& parameter : session.plan().parameters) {
    if (!parameter.adapter) continue;
    adapters.insert(parameter.path);
    stored |= checkpoint.model.find(parameter.path) != nullptr;
  }
  if (!stored)
    std::erase_if(wanted, [&](const NamedTensor& tensor) { return adapters.count(tensor.name) > 0; });
  NonFiniteCounter found;
  const QuantizingLoader unpacked(
      checkpoint.model, session.plan().parameters,
      [&](const std::string& name, std::span<const std::byte> data) { session.write(name, data); });
  if (unpacked.count() > 0)
    note(fmt::format("{} tensors of '{}' are quantized while they are loaded", unpacked.count(),
                     checkpoint.path));
  load_model(
      checkpoint.model, unpacked.wanted(std::move(wanted)),
      [&](const std::string& name, std::span<const std::byte> data) {
        add_values(session.plan(), name, data, found);
        unpacked.write(name, data);
      },
      note);
  require_finite(found, "checkpoint '" + checkpoint.path + "'");
}

}  // namespace meshloom::trainer
