#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/cli/command.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/environment.h"
#include "bench/core/recipe.h"
#include "bench/core/train_step.h"
#include "hal/error.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct TrainStepOptions {
  trainer::RecipeOptions recipe;
  int steps = 5;
  std::string trace, json;
  std::vector<std::string> by{"op", "variant", "phase"};
  bool quiet = false;
};

int step_run(const trainer::Registries& registries, const TrainStepOptions& options) {
  OutputOptions files;
  files.json = options.json;
  files.html = options.trace;
  files.check();
  group({}, options.by);  // refuses unknown names before anything is measured
  const auto [asked, config, device] = options.recipe.opened(registries);
  if (!device->info().computes)
    throw Error("--device", "must be one that computes", device->info().id + ", " + device->info().name);
  StepReport report;
  report.header = describe(*device);
  report.recipe = options.recipe.recipe.empty() ? options.recipe.config : options.recipe.recipe;
  report.header.set("recipe",
                    fmt::format("{}, {} rows of {} tokens", report.recipe, config.batch, config.sequence));
  trainer::Plan plan = plan_to_run(config, registries.catalog, device->info());
  for (const std::string& note : plan.notes) trainer::say_note(note);
  if (const std::string note = load_note(); !note.empty()) trainer::say_note(note);
  report.ceilings = measure_ceilings(*device, registries.devices);
  const trainer::StopSignals stop;
  {
    Progress progress(options.quiet);
    run_steps(
        config, std::move(plan), *device, registries.catalog, options.steps, [&] { return stop.requested(); },
        [&](int done, int total, const std::string& what) { progress.say(done, total, what); }, report);
    if (!report.stopped)
      report.ceilings = best(report.ceilings, measure_ceilings(*device, registries.devices));
    report.raise_ceilings();
  }
  if (options.json == "-")
    fmt::print("{}", to_json(report, options.by));
  else if (!options.json.empty())
    write_file(options.json, to_json(report, options.by));
  if (!options.trace.empty()) write_file(options.trace, to_trace(report));
  if (options.json != "-") fmt::print("{}", to_text(report, options.by));
  return report.stopped ? kStopped : kDone;
}

}  // namespace

void add_train_step(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command =
      bench.add_subcommand("train_step", "Time whole train steps of a recipe, and each of their calls");
  auto options = std::make_shared<TrainStepOptions>();
  options->recipe.add_to(*command);
  command->add_option("--steps", options->steps, "Steps to time, after a warm-up step (5)")
      ->check(CLI::Range(1, 100000));
  command
      ->add_option("--by", options->by, "Break down the step by some of op, variant, phase, path, tag, shape")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("WORD,...");
  command
      ->add_option("--trace", options->trace,
                   "Write the calls of the last step as a Chrome trace, which Perfetto reads")
      ->type_name("FILE");
  add_optional_file(*command, "--json", options->json,
                    "Write JSON to FILE, or to stdout instead of the table");
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  refuse_empty(*command, {"--trace"});
  command->footer(
      "Runs on random tokens. Whole steps alternate with steps that have a timestamp after every call; the "
      "latter give the\nbreakdown.\n"
      "Examples:\n  meshloom bench train_step tiny --device cpu --steps 20\n"
      "  meshloom bench train_step gpt2-124m --set batch=1 --set sequence=256 --by op,shape --trace "
      "step.json");
  command->callback([=, &action] { action = [=] { return step_run(registries, *options); }; });
}

}  // namespace meshloom::bench
