#include <fmt/format.h>

#include <memory>
#include <optional>

#include "bench/cli/command.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/plans/features.h"
#include "bench/plans/report.h"
#include "bench/plans/runs.h"
#include "hal/error.h"
#include "trainer/io/file.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct PlansOptions {
  std::string table, features, json;
  bool quiet = false;
};

int plans_run(const trainer::Registries& registries, const PlansOptions& options) {
  OutputOptions files;
  files.json = options.json;
  files.check();
  PlansReport report;
  report.table = options.table;
  const std::vector<PublishedRun> runs =
      parse_published_runs(trainer::read_file(options.table, options.table), options.table);
  const trainer::StopSignals stop;
  {
    Progress progress(options.quiet);
    FeatureComposer composer(registries.devices, registries.catalog);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (stop.requested()) return kStopped;
      progress.say(static_cast<int>(i), static_cast<int>(runs.size()), "composing " + runs[i].model);
      try {
        report.runs.push_back({runs[i], composer.compose(runs[i])});
      } catch (const Error& error) {
        report.skipped.push_back({runs[i], error.what()});
      }
    }
    if (report.runs.empty())
      throw Error(fmt::format("{}:{}", options.table, report.skipped.front().run.line),
                  "a run must be one that can be composed", report.skipped.front().reason);
    if (!options.features.empty()) write_file(options.features, features_json(report.runs));
    const std::optional<Validation> validation =
        validate(report.runs, {[&] { return stop.requested(); },
                               [&](int done, int total, const std::string& what) {
                                 progress.say(done, total, "fitting, " + what);
                               }});
    if (!validation) return kStopped;
    report.validation = *validation;
  }
  if (options.json == "-") {
    fmt::print("{}", to_json(report));
    return kDone;
  }
  if (!options.json.empty()) write_file(options.json, to_json(report));
  fmt::print("{}", to_text(report));
  return kDone;
}

}  // namespace

void add_plans(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command = bench.add_subcommand("plans", "Compare predicted step times with published runs");
  auto options = std::make_shared<PlansOptions>();
  command->add_option("table", options->table, "The published runs, as CSV")->required()->type_name("FILE");
  command
      ->add_option("--features", options->features, "Write what each run computes and moves to FILE, as JSON")
      ->type_name("FILE");
  add_optional_file(*command, "--json", options->json,
                    "Write JSON to FILE, or to stdout instead of the table");
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  refuse_empty(*command, {"--features"});
  command->footer(
      "Each row's run is composed for its chip, on the device null, and the efficiencies of calls and moves "
      "are fitted to the "
      "times\nof steps. The errors are those of rows that a fit has not seen, by rows and by sources; beside "
      "them stand those of "
      "one part\nof the peak per family of chips.\n"
      "Example:\n  meshloom bench plans published_steps.csv --json plans.json");
  command->callback([=, &action] { action = [=] { return plans_run(registries, *options); }; });
}

}  // namespace meshloom::bench
