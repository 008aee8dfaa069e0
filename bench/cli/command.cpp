#include "bench/cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/baseline.h"
#include "bench/core/environment.h"
#include "bench/core/recipe.h"
#include "bench/core/runner.h"
#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/io/file.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct Options {
  std::vector<std::string> ops, shapes, variants, set;
  std::string model, dtype = "f32", device = "cpu", as, against, filter, baseline, max_regression,
                     time = "0.5";
  bool cold = false, rotating = false, warm = false;
  OutputOptions output;
};

std::vector<std::string> op_names(const kernels::Catalog& catalog) {
  std::vector<std::string> names;
  for (const kernels::Contract* contract : catalog.contracts())
    if (!contract->view) names.push_back(contract->name);
  return names;
}

std::vector<Workload> workloads_of(const trainer::Registries& registries, const Options& options,
                                   const hal::DeviceInfo& device, std::vector<std::string>& notes) {
  const kernels::Catalog& catalog = registries.catalog;
  std::vector<std::string> ops = options.ops, other_dtypes;
  const bool all = std::find(ops.begin(), ops.end(), "all") != ops.end();
  if (all) ops = op_names(catalog);
  std::vector<Workload> result;
  if (!options.model.empty()) {
    if (!options.shapes.empty()) throw Error("--model, --shapes", "only one of them may be given", "both");
    trainer::RecipeOptions recipe;
    recipe.recipe = options.model;
    recipe.set = options.set;
    recipe.hardware.device = options.device;
    recipe.hardware.as = options.as;
    const trainer::TrainerConfig config = recipe.resolved(registries);
    result = recipe_workloads(plan_of(config, catalog, device), catalog);
    if (!ops.empty())
      std::erase_if(result, [&](const Workload& w) {
        return std::find(ops.begin(), ops.end(), w.contract->name) == ops.end();
      });
    if (result.empty()) throw Error("--model " + options.model, "must have calls of the op", hal::join(ops));
    return result;
  }
  if (!options.set.empty()) throw Error("--set", "needs a recipe, which --model names", "none");
  const hal::DType dtype = hal::dtype_from_string(options.dtype);
  for (const std::string& op : ops) {
    const kernels::Contract& contract = catalog.contract(op);
    if (contract.view) throw Error("op " + op, "must be one that runs a kernel", "a view");
    std::vector<Workload> some;
    if (options.shapes.empty()) {
      for (Workload& workload : case_workloads(contract, dtype))
        if (workload.dtype() == dtype || !hal::is_float(workload.dtype()))
          some.push_back(std::move(workload));
      if (some.empty() && all)
        other_dtypes.push_back(op);
      else if (some.empty())
        throw Error("--dtype", fmt::format("{} must have cases of it", op), options.dtype);
    }
    for (const std::string& shapes : options.shapes)
      for (Workload& workload : parse_shapes(catalog, op, shapes, dtype)) some.push_back(std::move(workload));
    result.insert(result.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  if (!other_dtypes.empty())
    notes.push_back(
        fmt::format("left out: ops without cases of {}: {}", options.dtype, hal::join(other_dtypes)));
  return result;
}

RunOptions run_options(const Options& options) {
  RunOptions run;
  for (const std::string& names : options.variants) {
    std::size_t begin = 0;
    for (std::size_t comma; (comma = names.find(',', begin)) != std::string::npos; begin = comma + 1)
      run.variants.push_back(names.substr(begin, comma - begin));
    run.variants.push_back(names.substr(begin));
  }
  if (std::find(run.variants.begin(), run.variants.end(), "all") != run.variants.end())
    run.variants = {"all"};
  if (options.cold + options.warm + options.rotating > 1)
    throw Error("--cold, --warm, --rotating", "only one of them may be given", "more");
  run.buffers = options.cold ? Buffers::cold : options.rotating ? Buffers::rotating : Buffers::warm;
  run.seconds = parse_duration(options.time, "--time-per-case");
  if (!options.filter.empty()) run.filter.emplace(options.filter, "--filter");
  return run;
}

bool is_file(const std::string& text) {
  return text.ends_with(".json") || text.find('/') != std::string::npos ||
         std::filesystem::is_regular_file(text);
}

Report read_report(const std::string& path, const std::string& option) {
  return parse_report(trainer::read_file(path, option + " '" + path + "'"), "'" + path + "'");
}

void require_op_not_file(const Options& options, const kernels::Catalog& catalog) {
  for (const auto& [option, value] :
       {std::pair{"--json", options.output.json}, {"--csv", options.output.csv}})
    if (catalog.has(value))
      throw Error(option, "must be followed by a file's name or nothing; ops come before it",
                  "'" + value + "', an op");
}

// What the rows are compared with besides a variant or a peer.
struct Comparisons {
  std::optional<Report> baseline, peer_file;
  double max_regression = 0.05;
};

// Reads the files of --baseline and --vs; a --vs that is no file becomes run.against.
Comparisons read_comparisons(const Options& options, RunOptions& run) {
  Comparisons result;
  if (!options.baseline.empty()) result.baseline = read_report(options.baseline, "--baseline");
  if (!options.max_regression.empty()) {
    if (!result.baseline) throw Error("--max-regression", "needs --baseline FILE", "no baseline");
    result.max_regression = parse_fraction(options.max_regression, "--max-regression");
  }
  if (is_file(options.against))
    result.peer_file = read_report(options.against, "--vs");
  else
    run.against = options.against;
  return result;
}

// Measures rows that look slower than the baseline again, because other programs may have slowed them down.
void measure_slow_rows_again(Runner& runner, const std::vector<Workload>& workloads, const Report& baseline,
                             double max_regression, Report& report) {
  std::vector<std::size_t> slow;
  for (std::size_t i = 0; i < report.rows.size(); ++i)
    if (const Row* match = find_baseline(baseline, report.rows[i], false)) {
      const std::string verdict = judge(report.rows[i], match, max_regression);
      if (verdict == "regression" || verdict == "noisy") slow.push_back(i);
    }
  runner.measure_again(workloads, slow, report);
}

// Raises the ceilings to the rates that correct rows reached, so that no row is above 100 %, and computes the
// rates.
void finish_rates(Report& report) {
  int above = 0;
  for (const Row& row : report.rows)
    if (row.seconds > 0 && (row.check == "ok" || row.check == "unchecked"))
      above += report.ceilings.raise(row.op, row.dtype, row.flops / row.seconds);
  for (Row& row : report.rows) compute_rates(row, report.ceilings);
  if (above == 0) return;
  std::string reached;
  for (const auto& [dtype, flops] : report.ceilings.max_reached)
    reached += fmt::format("{}{:.4g} GFLOP/s of {}", reached.empty() ? "" : ", ", flops * 1e-9, dtype);
  report.notes.push_back(
      fmt::format("kernels reached more than the probe of multiply-adds measured, and the peak is what they "
                  "reached: {}. Units for 16-bit and 8-bit types exceed the probe; otherwise the machine was "
                  "busy during the probe, and an idle one gives better numbers",
                  reached));
}

void measure_workloads(const trainer::Registries& registries, const Options& options, hal::Device& device,
                       const std::vector<Workload>& workloads, const Comparisons& comparisons, RunOptions run,
                       Report& report) {
  Progress progress(options.output.quiet);
  run.progress = [&](int done, int total, const std::string& what) { progress.say(done, total, what); };
  Runner runner(device, registries.devices, registries.catalog, run);
  if (const std::string version = runner.peer_version(); !version.empty())
    report.header.set("against", version);
  if (!options.model.empty()) report.header.set("recipe", options.model);
  runner.run(workloads, report);
  if (report.rows.empty() && !report.stopped) {
    const auto why = std::find_if(report.notes.begin(), report.notes.end(),
                                  [](const std::string& note) { return note.starts_with("left out"); });
    throw Error("bench", "there must be something to measure: see --variant and --filter",
                why == report.notes.end() ? "nothing" : *why);
  }
  if (comparisons.baseline && !options.max_regression.empty())
    measure_slow_rows_again(runner, workloads, *comparisons.baseline, comparisons.max_regression, report);
  report.ceilings = best(runner.ceilings(), measure_ceilings(device, registries.devices));
  finish_rates(report);
}

// Compares the rows with the files. Returns the number of regressions.
int compare_with_files(const Options& options, const Comparisons& comparisons, Report& report) {
  const auto compare_with = [&](const Report& other, const std::string& name) {
    compare(report, other, name);
    if (std::string note = environment_differences(report.header, other.header, name); !note.empty())
      report.notes.push_back(std::move(note));
  };
  if (comparisons.peer_file) compare_with(*comparisons.peer_file, options.against);
  if (!comparisons.baseline) return 0;
  compare_with(*comparisons.baseline, options.baseline);
  return options.max_regression.empty() ? 0 : gate(report, *comparisons.baseline, comparisons.max_regression);
}

int exit_code(const Options& options, const Report& report, int regressions) {
  const bool wrong = std::any_of(report.rows.begin(), report.rows.end(), [](const Row& row) {
    return row.check == "wrong" || row.check == "failed";
  });
  if (wrong) return kWrongResult;
  if (regressions > 0) return kRegression;
  if (report.stopped) return kStopped;
  if (!options.max_regression.empty() && std::all_of(report.rows.begin(), report.rows.end(),
                                                     [](const Row& row) { return row.verdict == "new"; }))
    throw Error("--max-regression",
                "a row of '" + options.baseline + "' must have a call, device and variant that was measured",
                "none");
  return kDone;
}

int bench_run(const trainer::Registries& registries, const Options& options) {
  if (options.ops.empty() && options.model.empty()) {
    require_op_not_file(options, registries.catalog);
    throw Error("bench",
                "needs an op (or 'all'), --model RECIPE, or one of train_step and tune; ops: " +
                    hal::join(op_names(registries.catalog)),
                "none");
  }
  options.output.check();
  RunOptions run = run_options(options);
  const Comparisons comparisons = read_comparisons(options, run);
  const std::unique_ptr<hal::Device> device = registries.devices.open(options.device, options.as);
  if (!device->info().computes)
    throw Error("--device", "must be one that computes", device->info().id + ", " + device->info().name);
  Report report;
  const std::vector<Workload> workloads = workloads_of(registries, options, device->info(), report.notes);
  const trainer::StopSignals stop;
  run.stopped = [&] { return stop.requested(); };
  report.header = describe(*device);
  if (std::string note = load_note(); !note.empty()) report.notes.push_back(std::move(note));
  measure_workloads(registries, options, *device, workloads, comparisons, run, report);
  compute_step_shares(report.rows);
  const int regressions = compare_with_files(options, comparisons, report);
  write(report, options.output);
  return exit_code(options, report, regressions);
}

constexpr const char* kShapesAndSamples =
    "Shapes: matmul MxNxK or GxMxNxK and :ta :tb :bias :residual :relu :silu :gelu "
    ":gelu_tanh; flash_attention\n"
    "and flash_attention_grad B,S,H,KV,D and :full :t=KEYS :window=KEYS :segments "
    ":query_offset :bias :bitmask; rms_norm, layer_norm, "
    "cross_entropy and their _grad\n"
    "ROWSxN, and :residual of norms' _grad; rope BxSxHxD; any op: a call as --json prints it, 'f32(4, 64), "
    "f32(64) {eps=1e-05}'. Without\n"
    "--shapes: the op's own cases.\n"
    "Ceilings (multiply-adds, copy, empty dispatch) are measured in the same run. Each row is the "
    "median of samples of\n"
    "about a millisecond (or 256 calls, or one); it is noisy (!) when the interquartile range, or "
    "the difference between\n"
    "its halves, exceeds 10%. Every result is checked against double precision. With "
    "--max-regression slow rows are\n"
    "measured again; a noisy row is a regression only if even its fastest sample is, and no row is "
    "one when the\n"
    "baseline is noisy.\n";
constexpr const char* kExamples =
    "\nExamples:\n"
    "  meshloom bench matmul --shapes '2048x2048x2048;128x576x49152' --vs onednn\n"
    "  meshloom bench flash_attention flash_attention_grad --shapes 4,1024,12,12,64 --device "
    "vulkan --variant all\n"
    "  meshloom bench --model smollm2-135m --set batch=1 --html step.html\n"
    "  meshloom bench all --json before.json\n"
    "  meshloom bench all --baseline before.json --max-regression 5%";

}  // namespace

void add_bench(CLI::App& app, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command = app.add_subcommand(
      "bench", "Time kernels, and compare them with the machine's ceilings and other libraries");
  auto options = std::make_shared<Options>();
  command->add_option("op", options->ops, "Ops to time, or 'all' (see meshloom kernels)")->type_name("OP");
  command
      ->add_option("--shapes", options->shapes, "Shapes, separated by ';' or in several --shapes; see below")
      ->allow_extra_args(false)
      ->type_name("SHAPES");
  command
      ->add_option("--model", options->model,
                   "Time the distinct calls of this recipe's train step, with their shares of it")
      ->type_name("RECIPE");
  command->add_option("--set", options->set, "PATH=VALUE: sets one field of the recipe, such as batch=1")
      ->allow_extra_args(false)
      ->type_name("PATH=VALUE");
  command->add_option("--dtype", options->dtype, "Element type of the shapes")->type_name("DTYPE");
  command->add_option("--device", options->device, "BACKEND or BACKEND:INDEX")->type_name("ID");
  command->add_option("--as", options->as, "The profile to run as")->type_name("PROFILE");
  command
      ->add_option(
          "--variant", options->variants,
          "Variants, separated by ',', or 'all' that fit (the reference only when it is named); default: the "
          "one that composing chooses")
      ->allow_extra_args(false)
      ->type_name("V,...");
  command
      ->add_option(
          "--vs", options->against,
          "What to compare with, sampled in turn with each row: a variant, or openblas, blis, onednn, "
          "onednn_packed, eigen (cpu), clblast (opencl); or the JSON file of another run")
      ->type_name("X");
  command->add_flag("--warm", options->warm, "Use the same buffers for every call (default)");
  command->add_flag("--rotating", options->rotating,
                    "Use so many buffers in turn that they exceed the caches");
  command->add_flag("--cold", options->cold, "Evict the caches before each call");
  command->add_option("--baseline", options->baseline, "The JSON file of an earlier run to compare with")
      ->type_name("FILE");
  command
      ->add_option("--max-regression", options->max_regression,
                   "With --baseline: exit with 4 when a row is slower by more than this, such as 5%")
      ->type_name("FRACTION");
  command->add_option("--time-per-case", options->time, "Seconds of samples per row (0.5)")
      ->type_name("TIME");
  command->add_option("--filter", options->filter, "Only rows whose 'OP SHAPE CASE VARIANT' matches this")
      ->type_name("REGEX");
  options->output.add_to(*command);
  refuse_empty(*command, {"--model", "--dtype", "--device", "--as", "--vs", "--baseline", "--max-regression",
                          "--filter"});
  command->footer(std::string(kShapesAndSamples) + kExitCodes + kExamples);
  add_train_step(*command, registries, action);
  add_decode(*command, registries, action);
  add_serve(*command, registries, action);
  add_tune(*command, registries, action);
  add_calibrate(*command, registries, action);
  add_predict(*command, registries, action);
  add_collectives(*command, registries, action);
  add_estimate(*command, registries, action);
  add_mesh(*command, registries, action);
  add_plans(*command, registries, action);
  command->callback([=, &action] {
    if (command->get_subcommands().empty()) action = [=] { return bench_run(registries, *options); };
  });
}

}  // namespace meshloom::bench
