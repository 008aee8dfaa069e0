#include <fmt/format.h>

#include <memory>

#include "bench/cli/command.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/calibrate.h"
#include "bench/core/recipe.h"
#include "bench/core/train_step.h"
#include "hal/error.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct CalibrateOptions {
  trainer::RecipeOptions recipe;
  int steps = 5;
  bool quiet = false;
};

int calibrate_run(const trainer::Registries& registries, const CalibrateOptions& options) {
  const auto [asked, config, device] = options.recipe.opened(registries);
  if (!device->info().computes)
    throw Error("--device", "must be one that computes", device->info().id + ", " + device->info().name);
  std::string note;
  trainer::MeasuredTimes times =
      trainer::MeasuredTimes::load(device->info(), &note).value_or(trainer::MeasuredTimes(device->info()));
  if (!note.empty()) trainer::say_note(note);
  times.save();  // fails early when the folder cannot be written
  StepReport report;
  report.recipe =
      fmt::format("{} {}x{}", options.recipe.recipe.empty() ? options.recipe.config : options.recipe.recipe,
                  config.batch, config.sequence);
  const trainer::StopSignals stop;
  {
    Progress progress(options.quiet);
    run_steps(
        config, plan_to_run(config, registries.catalog, device->info()), *device, registries.catalog,
        options.steps, [&] { return stop.requested(); },
        [&](int done, int total, const std::string& what) { progress.say(done, total, what); }, report);
  }
  if (report.stopped) return kStopped;
  const std::size_t before = times.calls().size();
  record(report, times);
  times.save();
  fmt::print("{} calls of {} kernels timed, {} of them new; a step takes {}, its calls {}\n",
             report.calls.size(), times.calls().size(), times.calls().size() - before,
             seconds_text(median(report.wall)), seconds_text(report.kernel_seconds()));
  fmt::print("saved {}\nused by `meshloom plan` on this device\n", times.path().string());
  return kDone;
}

}  // namespace

void add_calibrate(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command = bench.add_subcommand(
      "calibrate", "Time the calls of a recipe's train step, for the times that plan predicts");
  auto options = std::make_shared<CalibrateOptions>();
  options->recipe.add_to(*command);
  command->add_option("--steps", options->steps, "Steps to time, after a warm-up step (5)")
      ->check(CLI::Range(1, 100000));
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  command->footer(
      "The times are stored in the cache folder (measured/) by device, driver, profile and the kernels' "
      "sources, "
      "and are no\n"
      "longer used when one of these changes. `meshloom plan` takes them for the same calls, and scales them "
      "for "
      "calls of the\n"
      "same kernel with other sizes; no kernel is chosen by them. Times of several recipes are kept "
      "together.\n"
      "Examples:\n  meshloom bench calibrate tiny --device cpu --steps 3\n"
      "  meshloom bench calibrate tiny --set batch=8 --device cpu --steps 3");
  command->callback([=, &action] { action = [=] { return calibrate_run(registries, *options); }; });
}

}  // namespace meshloom::bench
