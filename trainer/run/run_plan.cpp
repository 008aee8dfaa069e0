#include "trainer/run/run_plan.h"

#include "trainer/data/jsonl/jsonl_prompts.h"
#include "trainer/inference/generator.h"
#include "trainer/rollout/rollouts.h"
#include "trainer/run/text_sample.h"

namespace meshloom::trainer {

Plan compose_run(const TrainerConfig& config, ComposeOptions options, const SampleOptions& sample,
                 const kernels::Catalog& catalog, const hal::DeviceInfo& device, PassTrace* trace) {
  const auto compose = [&] {
    return compose_training(*config.model, *config.learner, options, catalog, device, trace);
  };
  std::string recomputes;
  if (config.input->prompts()) {
    if (const Topology ranks(config.mesh->axes()); ranks.ranks() > ranks.size(AxisName::data))
      throw Error(
          "mesh",
          "a run that learns from rewards must have a mesh of the axis data alone, as each rank writes "
          "with the whole model",
          ranks.text());
    if (sample.while_training())
      throw Error("--sample-every",
                  "is not for runs that learn from the model's answers, all of which are in rollouts.jsonl");
    options.evaluation = false;  // what the model writes is evaluated
    options.decode = decode_options(runner_options(rollout_engine_options(config), config), device);
  } else if (sample.while_training()) {
    recomputes =
        compose_generation(options, *config.model, TextSample::sequence(options.sequence, sample.tokens),
                           options.source, catalog, device);
  } else {
    return compose();
  }
  Plan plan = [&] {
    try {
      return compose();
    } catch (const NotRowExact&) {
      options.decode.row_exact = false;  // as compose_serving() does
      return compose();
    }
  }();
  if (!recomputes.empty())
    plan.notes.push_back("each token of a sample computes the whole text in front of it: " + recomputes);
  return plan;
}

}  // namespace meshloom::trainer
