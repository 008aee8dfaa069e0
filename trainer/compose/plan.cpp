#include "trainer/compose/plan.h"

#include <array>

#include "hal/error.h"
#include "hal/math.h"
#include "hal/suggest.h"
#include "hal/transport/transport.h"
#include "kernels/core/contract.h"

namespace meshloom::trainer {
namespace {

constexpr const char* kCopyPrefix = "copy/";

double flops_of(const Plan& plan, const ProgramKey& step, bool recomputed, std::string_view op = "") {
  const kernels::Program& program = plan.steps.at(step).program;
  double sum = 0;
  for (const kernels::Call& call : program.calls) {
    if ((call.phase == kernels::Phase::recompute) != recomputed || !call.choice || !call.choice->variant ||
        !call.op.starts_with(op))
      continue;
    const kernels::CallTypes types(program, call);
    sum += call.choice->variant->contract->flops(types.view(call));
  }
  return sum;
}

// Sums `amount` over the programs of one update.
template <typename F>
double per_update(const Plan& plan, F amount) {
  double sum = 0;
  for (const UpdateStep& part : plan.steps.update) sum += static_cast<double>(part.times) * amount(part.step);
  return sum;
}

}  // namespace

std::string_view to_string(Step step) {
  constexpr std::array<std::string_view, 11> kNames{"accumulate", "apply", "eval",    "logits",
                                                    "decode",     "train", "forward", "backward",
                                                    "weights",    "outer", "encode"};
  return kNames.at(static_cast<std::size_t>(step));
}

std::string name_in_slot(const std::string& name, int chunk, int slot) {
  return name + "@" + std::to_string(chunk) + "." + std::to_string(slot);
}

std::string parameter_copy_name(const std::string& path) { return kCopyPrefix + path; }
bool is_parameter_copy(const std::string& name) { return name.starts_with(kCopyPrefix); }

std::string island_name(const std::string& path) { return "island/" + path; }

const PlannedProgram& StepPlan::at(const ProgramKey& key) const {
  const auto found = programs.find(key);
  if (found != programs.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, planned] : programs) names.push_back(planned.program.name);
  throw hal::Error("plan, program '" + std::string(to_string(key.step)) + "'",
                   "must be one of " + hal::join(names));
}

const kernels::TensorType& Plan::whole_type(const std::string& name) const {
  if (const auto found = divided.find(name); found != divided.end()) return found->second.whole;
  if (const auto found = persistent_types.find(name); found != persistent_types.end()) return found->second;
  throw hal::Error("plan", "must have the persistent value", "'" + name + "'");
}

Layout Plan::layout(const std::string& name, int rank) const {
  const auto found = divided.find(name);
  return found == divided.end() ? whole_layout(whole_type(name)) : layout_of(found->second, mesh, rank);
}

std::int64_t Plan::transfer_bytes(const Transfer& transfer) const {
  std::int64_t bytes = 0;
  for (const std::string& name : transfer.values) bytes += persistent_types.at(name).bytes();
  return bytes;
}

std::map<std::string, MovedBytes> Plan::update_moved_bytes() const {
  std::map<std::string, MovedBytes> moved;
  for (const UpdateStep& part : steps.update)
    for (const auto& [axes, bytes] : trainer::moved_bytes(steps.at(part.step).exchanges))
      for (std::int64_t i = 0; i < part.times; ++i) moved[axes] += bytes;
  for (const StepAction& action : steps.schedule) {
    if (action.transfer < 0) continue;
    const Transfer& transfer = steps.transfers.at(static_cast<std::size_t>(action.transfer));
    const std::int64_t bytes = transfer_bytes(transfer);
    const std::int64_t messages = hal::ceil_div(bytes, hal::kMaxMessageBytes);
    moved["pipeline"] += transfer.out ? MovedBytes{bytes, 0, messages, 0} : MovedBytes{0, bytes, 0, messages};
  }
  return moved;
}

MovedBytes Plan::outer_moved_bytes() const {
  MovedBytes moved;
  for (const OuterPart& part : steps.outer)
    for (const auto& [axes, bytes] : trainer::moved_bytes(steps.at(part.program).exchanges)) moved += bytes;
  return moved;
}

double Plan::flops(const ProgramKey& step) const { return flops_of(*this, step, false); }
double Plan::recompute_flops(const ProgramKey& step) const { return flops_of(*this, step, true); }

double Plan::roofline_seconds(const ProgramKey& step) const {
  double sum = 0;
  for (const kernels::Call& call : steps.at(step).program.calls)
    if (call.choice) sum += call.choice->floor_seconds;
  return sum;
}

double Plan::predicted_seconds(const ProgramKey& step) const {
  double sum = 0;
  for (const kernels::Call& call : steps.at(step).program.calls)
    if (call.choice) sum += call.choice->predicted_seconds;
  return sum;
}

double Plan::predicted_seconds(const ProgramKey& step, kernels::TimeBasis basis) const {
  double sum = 0;
  for (const kernels::Call& call : steps.at(step).program.calls)
    if (call.choice && call.choice->basis == basis) sum += call.choice->predicted_seconds;
  return sum;
}

double Plan::update_flops() const {
  return per_update(*this, [&](const ProgramKey& step) { return flops(step); });
}

double Plan::update_flops_of(std::string_view op) const {
  return per_update(*this, [&](const ProgramKey& step) { return flops_of(*this, step, false, op); });
}

double Plan::update_roofline_seconds() const {
  return host.copy_seconds +
         per_update(*this, [&](const ProgramKey& step) { return roofline_seconds(step); });
}

double Plan::update_predicted_seconds() const {
  return host.copy_seconds +
         per_update(*this, [&](const ProgramKey& step) { return predicted_seconds(step); });
}

double Plan::update_predicted_seconds(kernels::TimeBasis basis) const {
  return per_update(*this, [&](const ProgramKey& step) { return predicted_seconds(step, basis); });
}

std::int64_t Plan::parameter_count() const {
  std::int64_t sum = 0;
  for (const layers::ParameterInfo& info : parameters) sum += info.count();
  return sum;
}

std::int64_t Plan::trainable_parameter_count() const {
  std::int64_t sum = 0;
  for (const layers::ParameterInfo& info : parameters) sum += info.frozen ? 0 : info.count();
  return sum;
}

}  // namespace meshloom::trainer
