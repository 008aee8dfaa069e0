#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/cli/subcommands.h"
#include "bench/core/recipe.h"
#include "bench/core/tune.h"
#include "hal/error.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct Options {
  trainer::RecipeOptions recipe;
  std::vector<std::string> ops;
  std::string budget = "10m", save;
  bool quiet = false;
};

int tune_run(const trainer::Context& context, const Options& options) {
  TuneOptions limits;
  limits.budget = parse_duration(options.budget, "--budget");
  const trainer::RecipeOptions& recipe = options.recipe;
  if (recipe.tuned) throw Error("--tuned", "is for the runs that use what tuning found", "bench tune");
  const bool of_recipe = !recipe.recipe.empty() || !recipe.config.empty();
  if (!of_recipe && options.ops.empty())
    throw Error("bench tune", "needs a recipe, whose calls are tuned, or --op, whose cases are", "neither");
  std::unique_ptr<hal::Device> device;
  std::vector<Workload> workloads;
  for (const std::string& op : options.ops) context.catalog.contract(op);  // throws with a suggestion
  if (of_recipe) {
    const trainer::TrainerConfig config = recipe.resolved(context);
    device = trainer::open_device(config, context.registry, trainer::say_note);
    workloads = recipe_workloads(config, plan_of(config, context.catalog, device->info()), context.catalog);
    if (!options.ops.empty())
      std::erase_if(workloads, [&](const Workload& w) {
        return std::find(options.ops.begin(), options.ops.end(), w.contract->name) == options.ops.end();
      });
  } else {
    device = context.registry.open(recipe.hardware.device.empty() ? "cpu" : recipe.hardware.device,
                                   recipe.hardware.as);
    for (const std::string& op : options.ops)
      for (Workload& workload : case_workloads(context.catalog.contract(op)))
        workloads.push_back(std::move(workload));
  }
  if (device->info().backend == "null") throw Error("--device", "must be one that computes", "null");
  if (workloads.empty()) throw Error("bench tune", "must find a call to tune", "none of these ops");
  std::string note;
  trainer::Tuning tuning =
      trainer::Tuning::load(device->info(), &note).value_or(trainer::Tuning(device->info()));
  if (!note.empty()) trainer::say_note(note);
  tuning.save();  // a folder that cannot be written is said before the work
  const trainer::StopSignals stop;
  limits.stopped = [&] { return stop.requested(); };
  std::vector<Trial> trials;
  {
    Progress progress(options.quiet);
    limits.progress = [&](int done, int total, const std::string& what) { progress.say(done, total, what); };
    trials = tune(*device, context.catalog, workloads, limits, tuning, [&] { tuning.save(); });
  }
  fmt::print("{}", to_text(trials));
  if (trials.size() < workloads.size())
    fmt::print(
        "{} calls were not reached: run it again, which begins with what was not tuned, or with more "
        "--budget\n",
        workloads.size() - trials.size());
  fmt::print("saved {}\nused by `meshloom train`, `plan` and `bench train_step` with --tuned\n",
             tuning.path().string());
  if (!options.save.empty()) tuning.save_as(options.save);
  return stop.requested() ? kStopped : kDone;
}

}  // namespace

void add_tune(CLI::App& bench, const trainer::Context& context, trainer::Action& action) {
  CLI::App* command =
      bench.add_subcommand("tune", "Find the fastest variant of each call, for runs with --tuned");
  auto options = std::make_shared<Options>();
  options->recipe.add_to(*command);
  command->add_option("--op", options->ops, "Only calls of these ops; without a recipe, their case lists")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("OP,...");
  command->add_option("--budget", options->budget, "Time in all, such as 10m")->type_name("TIME");
  command->add_option("--save", options->save, "Also write all that is known of this device to a file")
      ->type_name("FILE");
  command->add_flag("--quiet", options->quiet, "No progress on stderr");
  refuse_empty(*command, {"--save"});
  command->footer(
      "Every variant that fits is timed in turn with the one that composing chooses, and its result checked; "
      "one that\n"
      "fails or is wrong costs only itself. The winners are kept in the cache folder, by device, driver, "
      "profile and\n"
      "the kernels' sources: when one of these changes, they count no more. Calls that weigh most come "
      "first. A call\n"
      "that was not tuned goes by the nearest that was, a device by what the program has of one like it.\n"
      "Examples:\n  meshloom bench tune gpt2-124m --set batch=1 --device vulkan:0 --budget 5m\n"
      "  meshloom train gpt2-124m --set batch=1 --device vulkan:0 --tuned --data text.txt");
  command->callback([=, &action] { action = [=] { return tune_run(context, *options); }; });
}

}  // namespace meshloom::bench
