#include "trainer/run/run_plan.h"

#include "trainer/inference/generator.h"
#include "trainer/run/text_sample.h"

namespace meshloom::trainer {

Plan compose_run(const TrainerConfig& config, ComposeOptions options, const SampleOptions& sample,
                 const kernels::Catalog& catalog, const hal::DeviceInfo& device, PassTrace* trace) {
  const auto compose = [&] {
    return compose_training(*config.model, *config.learner, options, catalog, device, trace);
  };
  if (!sample.while_training()) return compose();
  const std::string recomputes =
      compose_generation(options, *config.model, TextSample::sequence(options.sequence, sample.tokens),
                         options.source, catalog, device);
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
