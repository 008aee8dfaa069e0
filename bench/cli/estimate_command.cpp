#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bench/cli/command.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/estimate.h"
#include "bench/core/measured_step.h"
#include "bench/core/recipe.h"
#include "hal/error.h"
#include "trainer/cli/command.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/compose/report.h"
#include "trainer/io/file.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct EstimateCommandOptions {
  trainer::RecipeOptions recipe;
  std::string json, measured;
  std::size_t rows = 12;
  bool quiet = false;
};

int estimate_run(const trainer::Registries& registries, const EstimateCommandOptions& options) {
  OutputOptions files;
  files.json = options.json;
  files.check();
  std::optional<MeasuredStep> measured;
  const std::string file = "--vs '" + options.measured + "'";
  if (!options.measured.empty())
    measured = parse_measured_step(trainer::read_file(options.measured, file), file);
  trainer::RecipeOptions recipe = options.recipe;
  if (!recipe.hardware.selector.empty())
    throw Error("--selector", "bench estimate names its device by --device, and its profile by --as",
                "'" + recipe.hardware.selector + "'");
  const std::string id = recipe.hardware.device.empty() ? "vulkan" : recipe.hardware.device;
  const std::unique_ptr<hal::Device> device = registries.devices.open_to_inspect(id);
  if (!recipe.hardware.as.empty()) device->run_as(hal::find_profile(recipe.hardware.as));
  const hal::DeviceInfo& info = device->info();
  if (hal::peak_flops(info.profile, hal::DType::f32) <= 0 || info.profile.memory_bytes_per_second <= 0)
    throw Error(info.id,
                "an estimate needs the rates of the GPU: --as names a profile of `meshloom profiles`",
                "none in profile '" + info.profile.name + "'");
  // The rules are those of the profile. The device cannot run, so that it is not the one they are resolved with.
  recipe.hardware.device = "null";
  recipe.hardware.as = info.profile.name;
  const trainer::TrainerConfig config = recipe.resolved(registries);
  const trainer::StopSignals stop;
  const trainer::Plan plan = plan_of(config, registries.catalog, info);
  std::int64_t memory = trainer::memory_limit(info);
  if (config.memory > 0) memory = memory > 0 ? std::min(memory, config.memory) : config.memory;
  if (memory > 0 && plan.peak_bytes > memory)
    trainer::say_note(
        fmt::format("the step takes {} of the device's memory, of which there are {}: the recipe is "
                    "estimated as it is, though "
                    "a run of it would be made to fit or refused (see `meshloom plan`)",
                    trainer::readable_bytes(plan.peak_bytes), trainer::readable_bytes(memory)));
  EstimatedStep step;
  {
    Progress progress(options.quiet);
    EstimateOptions limits;
    limits.stopped = [&] { return stop.requested(); };
    limits.progress = [&](int done, int total, const std::string& what) { progress.say(done, total, what); };
    step = estimate_step(*device, registries.catalog, plan, limits);
  }
  if (step.stopped) return kStopped;
  step.recipe = fmt::format("{} {}x{} {}", recipe.recipe.empty() ? recipe.config : recipe.recipe,
                            config.batch, config.sequence, hal::to_string(config.compose_options().dtype));
  step.tokens = static_cast<double>(config.batch) * static_cast<double>(config.sequence);
  step.peak = hal::peak_flops(info.profile, config.compose_options().dtype);
  if (measured) compare(step, *measured, file);
  if (options.json == "-") {
    fmt::print("{}", to_json(step, info));
  } else {
    if (!options.json.empty()) write_file(options.json, to_json(step, info));
    fmt::print("{}: {}, {}, as {}; nothing runs\n\n{}", info.id, info.name, info.driver, info.profile.name,
               to_text(step, options.rows));
  }
  return step.failed() == 0 ? kDone : kWrongResult;
}

}  // namespace

void add_estimate(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command = bench.add_subcommand(
      "estimate",
      "Predict a step on a GPU that is not here, from what its driver's compiler makes of the kernels");
  auto options = std::make_shared<EstimateCommandOptions>();
  options->recipe.add_to(*command);
  command->add_option("--rows", options->rows, "Calls to print, those that take longest first (12)")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option(
          "--vs", options->measured,
          "The JSON file of `meshloom bench train_step` of the same recipe on such a GPU: its times stand "
          "beside the predicted ones, those that differ most first")
      ->type_name("FILE");
  add_optional_file(*command, "--json", options->json,
                    "Write JSON to FILE, or to stdout instead of the table");
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  refuse_empty(*command, {"--vs"});
  command->footer(
      "The device is one that `meshloom kernels --inspect` takes. Nothing runs: every number is predicted, "
      "and the "
      "page\n"
      "docs/inspecting-kernels.md says by what model and how far it was off.\n"
      "Examples:\n"
      "  meshloom bench estimate smollm2-135m --device opencl:dg2\n"
      "  RADV_FORCE_FAMILY=navi21 meshloom bench estimate smollm2-135m --device vulkan:0 --as rx6800xt\n"
      "  meshloom bench train_step smollm2-135m --device vulkan:0 --as rx6800xt --json step.json   # on the "
      "card\n"
      "  RADV_FORCE_FAMILY=navi21 meshloom bench estimate smollm2-135m --device vulkan:0 --as rx6800xt --vs "
      "step.json");
  command->callback([=, &action] { action = [=] { return estimate_run(registries, *options); }; });
}

}  // namespace meshloom::bench
