#include "tests/trainer/run/short_run.h"

#include <gtest/gtest.h>

#include "layers/config/tree.h"
#include "trainer/compose/compose.h"
#include "trainer/execute/session.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"
#include "trainer/run/step_runner.h"

namespace meshloom::trainer {

World::World() : classes_(recipe_classes()) {
  kernels::add_contracts(catalog);
  register_backends(registry, catalog);
  corpus_ =
      read_corpus({scratch_.file("text", tests::sample_text(20000))}, {}, 0.1, *byte_tokenizer(), 256, 64);
}

std::string World::why_none(const std::string& backend) const {
  for (const hal::BackendDevices& found : registry.enumerate())
    if (found.backend == backend) return found.devices.empty() ? found.why_none : "";
  return "this backend was not built";
}

Trained World::train(const std::string& selector, int steps, const Edits& edits) {
  TrainerConfig config = tiny();
  if (!edits.from.empty()) layers::replace(config, edits.from, edits.to, classes_);
  config.hardware_rules = false;  // the reference is f32
  resolve(config, {.selector = selector}, registry, classes_);
  if (!edits.variant.empty()) {
    KernelRuleConfig rule;
    rule.variant = edits.variant;
    config.kernels.emplace_back(rule);
  }
  config.check();
  const auto device = open_device(config, registry);
  Plan plan =
      compose_training(*config.model, *config.learner, config.compose_options(), catalog, device->info());
  Trained run;
  for (const auto& [name, planned] : plan.steps.programs)
    for (const kernels::Call& call : planned.program.calls)
      if (call.choice && call.choice->variant) run.variants[call.op].insert(call.choice->variant->name);
  Session session(*device, catalog, std::move(plan));
  EXPECT_EQ(device->allocated_bytes(), session.plan().peak_bytes);
  initialize(session, static_cast<std::uint64_t>(config.seed));
  StepRunner stepper(config, session,
                     std::make_unique<TextWindows>(corpus_.train(), config.batch, config.sequence,
                                                   static_cast<std::uint64_t>(config.seed)),
                     nullptr);
  for (int step = 0; step < steps; ++step) run.losses.push_back(stepper.step(step).loss);
  EXPECT_EQ(device->peak_bytes(), session.plan().peak_bytes);
  return run;
}

}  // namespace meshloom::trainer
