#include <memory>

#include "bench/cli/command.h"
#include "bench/cli/inference_bench.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/serve.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct ServeCommandOptions {
  trainer::RecipeOptions recipe;
  ServeOptions serve;
  std::string json;
  bool quiet = false;
};

int serve_run(const trainer::Registries& registries, const ServeCommandOptions& options) {
  const InferenceBench bench = open_inference_bench(registries, options.recipe, options.json);
  ServeReport report;
  report.header = header_of(bench);
  report.recipe = bench.recipe;
  const trainer::StopSignals stop;
  {
    Progress progress(options.quiet);
    run_serve(
        bench.config, options.serve, *bench.device, registries.catalog, [&] { return stop.requested(); },
        [&](int done, int total, const std::string& what) { progress.say(done, total, what); }, report);
  }
  return finish(
      report, options.json, [](const ServeReport& of) { return to_json(of); },
      [](const ServeReport& of) { return to_text(of); });
}

}  // namespace

void add_serve(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command =
      bench.add_subcommand("serve", "Time texts that the engine of a server writes at once, without HTTP");
  auto options = std::make_shared<ServeCommandOptions>();
  options->recipe.add_to(*command);
  ServeOptions& serve = options->serve;
  command->add_option("--texts", serve.texts, "How many texts are written at once: a row each (1)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096))
      ->type_name("N,...");
  command->add_option("--prompt", serve.prompt, "Tokens of each prompt (256)")->check(CLI::Range(1, 1 << 20));
  command->add_option("--tokens", serve.tokens, "Tokens that are generated behind it (128)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--step-tokens", serve.step_tokens, "Tokens that one step computes (128)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--temperature", serve.temperature, "Of the sampler; 0 = the most probable tokens (1)")
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--rounds", serve.rounds, "Runs of each row, in turn, after a warm-up (3)")
      ->check(CLI::Range(1, 100000));
  command->add_flag_function(
      "--batch-invariant,!--no-batch-invariant",
      [&serve](std::int64_t given) { serve.batch_invariant = given > 0; },
      "A text has the same bits whatever else runs; without either, on the CPU where its kernels can");
  add_optional_file(*command, "--json", options->json,
                    "Write JSON to FILE, or to stdout instead of the table");
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  command->footer(
      "Runs on random parameters and prompts, with scheduling and sampling as in a server.\n"
      "Examples:\n  meshloom bench serve tiny --device cpu --prompt 32 --tokens 16\n"
      "  meshloom bench serve smollm2-135m --set dtype=bf16 --texts 1,8,32");
  command->callback([=, &action] { action = [=] { return serve_run(registries, *options); }; });
}

}  // namespace meshloom::bench
