#include <memory>

#include "bench/cli/command.h"
#include "bench/cli/inference_bench.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/decode.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct DecodeCommandOptions {
  trainer::RecipeOptions recipe;
  DecodeOptions decode;
  std::string json;
  std::vector<std::string> by;
  bool quiet = false;
};

int decode_run(const trainer::Registries& registries, const DecodeCommandOptions& options) {
  group({}, options.by);  // refuses unknown names before anything is measured
  const InferenceBench bench = open_inference_bench(registries, options.recipe, options.json);
  DecodeReport report;
  report.header = header_of(bench);
  report.recipe = bench.recipe;
  report.ceilings = measure_ceilings(*bench.device, registries.devices);
  const trainer::StopSignals stop;
  {
    Progress progress(options.quiet);
    run_decode(
        bench.config, options.decode, *bench.device, registries.catalog, [&] { return stop.requested(); },
        [&](int done, int total, const std::string& what) { progress.say(done, total, what); }, report);
    if (!report.stopped)
      report.ceilings = best(report.ceilings, measure_ceilings(*bench.device, registries.devices));
  }
  return finish(
      report, options.json, [&](const DecodeReport& of) { return to_json(of, options.by); },
      [&](const DecodeReport& of) { return to_text(of, options.by); });
}

}  // namespace

void add_decode(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command =
      bench.add_subcommand("decode", "Time the tokens that a recipe generates, and its prompts");
  auto options = std::make_shared<DecodeCommandOptions>();
  options->recipe.add_to(*command);
  DecodeOptions& decode = options->decode;
  command
      ->add_option("--texts", decode.texts,
                   "How many texts go on at once, each a token further: a row each (1)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096))
      ->type_name("N,...");
  command->add_option("--context", decode.context, "Tokens of each of these texts (256)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--prompt", decode.prompt, "Tokens of the row of a prompt; 0 = no such row (512)")
      ->check(CLI::Range(0, 1 << 20));
  command->add_option("--rounds", decode.rounds, "Runs of each row, in turn, after a warm-up (10)")
      ->check(CLI::Range(1, 100000));
  command->add_flag_function(
      "--batch-invariant,!--no-batch-invariant",
      [&decode](std::int64_t given) { decode.batch_invariant = given > 0; },
      "A text has the same bits whatever else runs; without either, on the CPU where its kernels can");
  command
      ->add_option("--by", options->by, "Break down each row by some of op, variant, phase, path, tag, shape")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("WORD,...");
  add_optional_file(*command, "--json", options->json,
                    "Write JSON to FILE, or to stdout instead of the tables");
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  command->footer(
      "Runs on random parameters and tokens, without sampling. The bytes are those of the calls' contracts: "
      "weights, "
      "the\ncaches of the texts, and what calls hand to one another.\n"
      "Examples:\n  meshloom bench decode tiny --device cpu\n"
      "  meshloom bench decode smollm2-135m --set dtype=bf16 --texts 1,8,32 --by op,variant");
  command->callback([=, &action] { action = [=] { return decode_run(registries, *options); }; });
}

}  // namespace meshloom::bench
