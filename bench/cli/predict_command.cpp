#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

#include "bench/cli/command.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/calibrate.h"
#include "bench/core/environment.h"
#include "bench/core/recipe.h"
#include "bench/core/train_step.h"
#include "hal/error.h"
#include "trainer/cli/command.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/compose/cost/cost_model.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

// Six recipes, small enough for a processor.
const std::vector<std::string> kSteps{"tiny",
                                      "tiny batch=8 sequence=128",
                                      "tiny-pairs",
                                      "tiny-pairs batch=4",
                                      "byte-llama-2m batch=2",
                                      "byte-llama-2m batch=4 sequence=128",
                                      "byte-llama-10m batch=1 sequence=128",
                                      "byte-llama-10m batch=2",
                                      "gpt2-124m batch=1 sequence=32",
                                      "gpt2-124m batch=1 sequence=64",
                                      "smollm2-135m batch=1 sequence=32",
                                      "smollm2-135m batch=1 sequence=64"};

struct PredictOptions {
  std::string device = "cpu", as, json;
  std::vector<std::string> steps;
  int count = 5;
  std::string max_error = "20%";
  bool quiet = false;
};

// "RECIPE PATH=VALUE ..."
trainer::RecipeOptions parse_step(const std::string& text, const PredictOptions& options) {
  std::istringstream words(text);
  trainer::RecipeOptions recipe;
  words >> recipe.recipe;
  for (std::string word; words >> word;) recipe.set.push_back(word);
  recipe.hardware.device = options.device;
  recipe.hardware.as = options.as;
  return recipe;
}

// One step that was run, and what is needed to predict it.
struct Run {
  trainer::Plan plan;
  trainer::MeasuredTimes times;
  StepReport report;
};

double predicted(const hal::DeviceInfo& device, trainer::Plan& plan, trainer::MeasuredTimes times) {
  trainer::predict_plan(plan, trainer::CostModel(device, std::move(times)));
  return plan.update_predicted_seconds();
}

// Adds the times of one run to another's, and takes its own for calls that both have.
void add(const trainer::MeasuredTimes& from, trainer::MeasuredTimes& to) {
  for (const auto& [key, call] : from.calls()) to.set(key, call);
  for (const auto& [name, step] : from.steps()) to.set_step(name, step);
}

int predict_run(const trainer::Registries& registries, const PredictOptions& options) {
  OutputOptions files;
  files.json = options.json;
  files.check();
  const double max_error = parse_fraction(options.max_error, "--max-error");
  const std::vector<std::string>& wanted = options.steps.empty() ? kSteps : options.steps;
  const trainer::StopSignals stop;
  std::vector<Run> runs;
  Header header;
  std::unique_ptr<hal::Device> device;
  {
    Progress progress(options.quiet);
    for (std::size_t i = 0; i < wanted.size() && !stop.requested(); ++i) {
      auto [asked, config, opened] = parse_step(wanted[i], options).opened(registries);
      device = std::move(opened);
      if (!device->info().computes)
        throw Error("--device", "must be one that computes", device->info().id + ", " + device->info().name);
      if (header.fields.empty()) header = describe(*device);
      Run run{plan_to_run(config, registries.catalog, device->info()),
              trainer::MeasuredTimes(device->info()),
              {}};
      run.report.recipe =
          fmt::format("{} {}x{}", wanted[i].substr(0, wanted[i].find(" ")), config.batch, config.sequence);
      run_steps(
          config, run.plan, *device, registries.catalog, options.count, [&] { return stop.requested(); },
          [&](int done, int total, const std::string& what) {
            progress.say(static_cast<int>(i) * total + done, static_cast<int>(wanted.size()) * total,
                         run.report.recipe + ", " + what);
          },
          run.report);
      if (run.report.stopped) break;
      record(run.report, run.times);
      runs.push_back(std::move(run));
    }
  }
  if (runs.empty()) return kStopped;
  std::vector<PredictedStep> steps;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Run& run = runs[i];
    trainer::MeasuredTimes times(device->info());
    for (std::size_t other = 0; other < runs.size(); ++other)
      if (other != i) add(runs[other].times, times);
    PredictedStep& step = steps.emplace_back();
    step.name = run.report.recipe;
    step.wall = median(run.report.wall);
    step.held_out = predicted(device->info(), run.plan, times);
    step.similar = run.plan.update_predicted_seconds(kernels::TimeBasis::similar);
    step.fitted = run.plan.update_predicted_seconds(kernels::TimeBasis::fitted);
    add(run.times, times);
    step.measured = predicted(device->info(), run.plan, std::move(times));
  }
  if (options.json == "-") {
    fmt::print("{}", to_json(steps, header));
  } else {
    if (!options.json.empty()) write_file(options.json, to_json(steps, header));
    fmt::print("{}", to_text(steps));
  }
  if (stop.requested()) return kStopped;
  const double error = median_error(steps, &PredictedStep::measured_error);
  if (error <= max_error) return kDone;
  trainer::say_error(fmt::format("the median error {:.1f}% is above {:.1f}%", 100 * error, 100 * max_error));
  return kRegression;
}

}  // namespace

void add_predict(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command = bench.add_subcommand("predict", "Compare predicted step times with steps that run");
  auto options = std::make_shared<PredictOptions>();
  command
      ->add_option(
          "--step", options->steps,
          "'RECIPE PATH=VALUE ...': a step to compare; may be repeated. Default: six small recipes in "
          "two shapes each")
      ->allow_extra_args(false)
      ->type_name("STEP");
  command->add_option("--device", options->device, "BACKEND or BACKEND:INDEX")->type_name("ID");
  command->add_option("--as", options->as, "The profile to run as")->type_name("PROFILE");
  command->add_option("--steps", options->count, "Steps to time of each, after a warm-up step (5)")
      ->check(CLI::Range(1, 100000));
  command
      ->add_option("--max-error", options->max_error, "Exit with 4 when the median error is above this (20%)")
      ->type_name("FRACTION");
  add_optional_file(*command, "--json", options->json,
                    "Write JSON to FILE, or to stdout instead of the table");
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  refuse_empty(*command, {"--device", "--as", "--max-error"});
  command->footer(
      "Each step is run whole and, in turn, with a timestamp after every call. It is predicted from the "
      "times of "
      "its calls, as\n"
      "plan does after `bench calibrate`, and also from the times of the other steps alone.\n"
      "Example:\n  meshloom bench predict --step tiny --step 'tiny batch=8' --device cpu --steps 3 "
      "--max-error 500%");
  command->callback([=, &action] { action = [=] { return predict_run(registries, *options); }; });
}

}  // namespace meshloom::bench
