#include "bench/core/recipe.h"

#include <algorithm>
#include <map>

#include "trainer/compose/compose.h"

namespace meshloom::bench {

namespace {

trainer::Plan composed(const trainer::TrainerConfig& config, const kernels::Catalog& catalog,
                       const hal::DeviceInfo& device, bool enforce_memory) {
  trainer::ComposeOptions options = config.compose_options();
  options.enforce_memory = enforce_memory;
  options.evaluation = false;
  return trainer::compose_training(*config.model, *config.learner, options, catalog, device);
}

}  // namespace

trainer::Plan plan_of(const trainer::TrainerConfig& config, const kernels::Catalog& catalog,
                      const hal::DeviceInfo& device) {
  return composed(config, catalog, device, /*enforce_memory=*/false);
}

trainer::Plan plan_to_run(const trainer::TrainerConfig& config, const kernels::Catalog& catalog,
                          const hal::DeviceInfo& device) {
  return composed(config, catalog, device, /*enforce_memory=*/true);
}

std::vector<Workload> recipe_workloads(const trainer::Plan& plan, const kernels::Catalog& catalog) {
  std::vector<Workload> result;
  std::map<std::string, std::size_t> known;  // call and variant -> index in result
  for (const trainer::UpdateStep& part : plan.steps.update) {
    const kernels::Program& program = plan.steps.at(part.step).program;
    for (const kernels::Call& call : program.calls) {
      const kernels::Contract& contract = catalog.contract(call.op);
      if (contract.view) continue;
      Workload workload;
      workload.contract = &contract;
      workload.inputs = program.types(call.inputs);
      workload.outputs = program.types(call.outputs);
      workload.attrs = call.attrs;
      workload.label = call.path.empty() ? std::string(to_string(call.phase)) : call.path;
      workload.planned = call.choice;
      workload.shape = shape_text(workload);
      const std::string text = workload.call();
      const auto [it, fresh] = known.emplace(text + "@" + call.choice->variant->name, result.size());
      if (fresh) result.push_back(std::move(workload));
      result[it->second].per_step += part.times;
    }
  }
  const auto weight = [](const Workload& w) {
    const kernels::CallView view = w.view();
    // A byte takes about as long as ten FLOPs; this is good enough to sort large calls first.
    return static_cast<double>(w.per_step) * (w.contract->flops(view) + 10 * w.contract->bytes(view));
  };
  std::stable_sort(result.begin(), result.end(),
                   [&](const Workload& a, const Workload& b) { return weight(a) > weight(b); });
  return result;
}

}  // namespace meshloom::bench
