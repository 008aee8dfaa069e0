#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/cli/command.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/recipe.h"
#include "bench/core/tune.h"
#include "hal/error.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct TuneCommandOptions {
  trainer::RecipeOptions recipe;
  std::vector<std::string> ops;
  std::string budget = "10m", save;
  bool quiet = false;
};

// nullptr where the driver does not say what becomes of kernels.
std::unique_ptr<hal::Device> inspector_of(const trainer::Registries& registries,
                                          const hal::DeviceInfo& info) {
  if (info.is_cpu) return nullptr;
  try {
    std::unique_ptr<hal::Device> inspector = registries.devices.open_to_inspect(info.id);
    inspector->run_as(info.profile);
    return inspector;
  } catch (const Error&) {
    return nullptr;
  }
}

int tune_run(const trainer::Registries& registries, const TuneCommandOptions& options) {
  TuneOptions limits;
  limits.budget = parse_duration(options.budget, "--budget");
  const trainer::RecipeOptions& recipe = options.recipe;
  if (recipe.tuned) throw Error("--tuned", "is for commands that use tuning results", "bench tune");
  const bool of_recipe = !recipe.recipe.empty() || !recipe.config.empty();
  if (!of_recipe && options.ops.empty())
    throw Error("bench tune", "needs a recipe, to tune its calls, or --op, to tune the cases of an op",
                "neither");
  std::unique_ptr<hal::Device> device;
  std::vector<Workload> workloads;
  for (const std::string& op : options.ops)
    registries.catalog.contract(op);  // throws Error with a suggestion
  if (of_recipe) {
    trainer::RecipeOptions::Opened run = recipe.opened(registries);
    device = std::move(run.device);
    workloads = recipe_workloads(plan_of(run.config, registries.catalog, device->info()), registries.catalog);
    if (!options.ops.empty())
      std::erase_if(workloads, [&](const Workload& w) {
        return std::find(options.ops.begin(), options.ops.end(), w.contract->name) == options.ops.end();
      });
  } else {
    device = registries.devices.open(recipe.hardware.device.empty() ? "cpu" : recipe.hardware.device,
                                     recipe.hardware.as);
    for (const std::string& op : options.ops)
      for (Workload& workload : case_workloads(registries.catalog.contract(op)))
        workloads.push_back(std::move(workload));
  }
  if (!device->info().computes)
    throw Error("--device", "must be one that computes", device->info().id + ", " + device->info().name);
  if (workloads.empty()) throw Error("bench tune", "must find a call to tune", "none of these ops");
  std::string note;
  trainer::Tuning tuning =
      trainer::Tuning::load(device->info(), &note).value_or(trainer::Tuning(device->info()));
  if (!note.empty()) trainer::say_note(note);
  tuning.save();  // fails early when the folder cannot be written
  const trainer::StopSignals stop;
  limits.stopped = [&] { return stop.requested(); };
  const std::unique_ptr<hal::Device> inspector = inspector_of(registries, device->info());
  limits.inspector = inspector.get();
  std::vector<TuningResult> results;
  {
    Progress progress(options.quiet);
    limits.progress = [&](int done, int total, const std::string& what) { progress.say(done, total, what); };
    results = tune(*device, registries.catalog, workloads, limits, tuning, [&] { tuning.save(); });
  }
  fmt::print("{}", to_text(results));
  if (results.size() < workloads.size())
    fmt::print(
        "{} calls were not tuned for lack of time: run it again, which begins with them, or with a larger "
        "--budget\n",
        workloads.size() - results.size());
  if (tuning.calls().empty())
    fmt::print(
        "nothing was saved: no variant was faster, and no call was compared with all of its variants in the "
        "time; give a larger --budget\n");
  else
    fmt::print("saved {}\nused by `meshloom train`, `plan` and `bench train_step` with --tuned\n",
               tuning.path().string());
  if (!options.save.empty()) tuning.save_as(options.save);
  return stop.requested() ? kStopped : kDone;
}

}  // namespace

void add_tune(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command =
      bench.add_subcommand("tune", "Find the fastest variant of each call, for commands with --tuned");
  auto options = std::make_shared<TuneCommandOptions>();
  options->recipe.add_to(*command);
  command->add_option("--op", options->ops, "Tune only calls of these ops; without a recipe, their cases")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("OP,...");
  command->add_option("--budget", options->budget, "Total time, such as 10m")->type_name("TIME");
  command->add_option("--save", options->save, "Also write all results for this device to a file")
      ->type_name("FILE");
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  refuse_empty(*command, {"--save"});
  command->footer(
      "Every variant that fits is timed in turn with the one that composing chooses, and its result is "
      "checked; "
      "variants that\n"
      "fail or are wrong are skipped. The winners are stored in the cache folder by device, driver, profile "
      "and "
      "the kernels'\n"
      "sources, and are no longer used when one of these changes. The most expensive calls are tuned first, "
      "and "
      "of each\n"
      "the kernels that look best to the driver's compiler, where it says what it makes of them (`meshloom "
      "kernels\n"
      "--inspect CALL --rank`). For a call that\n"
      "was not tuned the most similar one is used, and for a device without results those of a similar "
      "shipped "
      "device.\n"
      "Examples:\n  meshloom bench tune gpt2-124m --set batch=1 --device vulkan:0 --budget 5m\n"
      "  meshloom train gpt2-124m --set batch=1 --device vulkan:0 --tuned --data text.txt");
  command->callback([=, &action] { action = [=] { return tune_run(registries, *options); }; });
}

}  // namespace meshloom::bench
