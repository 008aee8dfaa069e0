#include "trainer/compose/plan.h"

#include "hal/error.h"
#include "hal/suggest.h"
#include "kernels/core/contract.h"

namespace meshloom::trainer {
namespace {

const PlannedProgram& find(const Plan& plan, const std::string& name) {
  const auto it = plan.programs.find(name);
  if (it != plan.programs.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [known, program] : plan.programs) names.push_back(known);
  throw hal::Error("plan, program '" + name + "'",
                   "must be one of " + hal::join(names) + hal::suggestion(name, names));
}

double flops_of(const Plan& plan, const std::string& name, bool recomputed) {
  const kernels::Program& program = find(plan, name).program;
  double sum = 0;
  for (const kernels::Call& call : program.calls) {
    if ((call.phase == kernels::Phase::recompute) != recomputed || !call.choice || !call.choice->variant)
      continue;
    const kernels::CallTypes types(program, call);
    sum += call.choice->variant->contract->flops(types.view(call));
  }
  return sum;
}

}  // namespace

double Plan::flops(const std::string& program) const { return flops_of(*this, program, false); }
double Plan::recompute_flops(const std::string& program) const { return flops_of(*this, program, true); }

double Plan::roofline_seconds(const std::string& program) const {
  double sum = 0;
  for (const kernels::Call& call : find(*this, program).program.calls)
    if (call.choice) sum += call.choice->predicted_seconds;
  return sum;
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
