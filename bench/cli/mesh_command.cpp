#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bench/cli/command.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/environment.h"
#include "bench/core/mesh.h"
#include "hal/error.h"
#include "hal/transport/link_model.h"
#include "hal/wrappers/slowed_device.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/run/ranks.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

struct MeshCommandOptions {
  trainer::RecipeOptions recipe;
  std::string mesh, link = "balanced", slow, json;
  int ranks = 0, steps = 5;
  bool quiet = false, all = false;
};

// The report of one mesh over one link.
MeshReport measured(const trainer::Registries& registries, const MeshCommandOptions& options,
                    const std::string& mesh, const std::string& link, const trainer::StopSignals& stop) {
  MeshOptions measure;
  measure.steps = options.steps;
  if (link != "balanced") measure.link = hal::parse_link(link, "--link");
  trainer::RecipeOptions recipe = options.recipe;
  const auto ranks = static_cast<int>(recipe.set_mesh(mesh, options.ranks));
  if (ranks < 2)
    throw Error("bench mesh", "needs at least two ranks (--mesh, --ranks)", std::to_string(ranks));
  std::map<int, double> slow;
  if (!options.slow.empty()) slow = hal::parse_slow(options.slow, ranks, "--slow");
  trainer::share_cores(ranks);
  auto [asked, config, device] = recipe.opened(registries);
  if (!device->info().computes)
    throw Error("--device", "must be one that computes", device->info().id + ", " + device->info().name);
  MeshReport report;
  report.header = describe(*device);
  report.recipe = options.recipe.recipe.empty() ? options.recipe.config : options.recipe.recipe;
  report.mesh = trainer::Topology(config.mesh->axes()).text();
  report.header.set("recipe",
                    fmt::format("{}, {} rows of {} tokens", report.recipe, config.batch, config.sequence));
  report.header.set(
      "mesh", report.mesh + ", ranks as threads" + (options.slow.empty() ? "" : ", slowed " + options.slow));
  std::vector<std::unique_ptr<hal::Device>> devices;
  devices.push_back(std::move(device));
  while (static_cast<int>(devices.size()) < ranks)
    devices.push_back(trainer::open_device(config, registries.devices));
  for (const auto& [rank, factor] : slow) {
    std::unique_ptr<hal::Device>& slowed = devices.at(static_cast<std::size_t>(rank));
    slowed = hal::slowed(std::move(slowed), factor);
  }
  Progress progress(options.quiet);
  measure.stopped = [&] { return stop.requested(); };
  measure.progress = [&](int done, int total, const std::string& what) { progress.say(done, total, what); };
  measure_mesh(config, devices, registries.catalog, measure, report);
  return report;
}

constexpr const char* kAllMeshes[] = {"data=2",         "fsdp=2",  "model=2",       "data=4",
                                      "fsdp=4",         "model=4", "data=2,fsdp=2", "data=2,model=2",
                                      "fsdp=2,model=2", "data=8",  "fsdp=8",        "data=2,fsdp=2,model=2"};
constexpr const char* kAllLinks[] = {"latency=0.2ms bandwidth=100MB/s", "latency=2ms bandwidth=20MB/s"};
constexpr std::int64_t kAllRows = 8;  // one for each of 8 ranks

int all_meshes_run(const trainer::Registries& registries, MeshCommandOptions options,
                   const trainer::StopSignals& stop) {
  if (!options.mesh.empty() || options.ranks > 0)
    throw Error("--all", "must be given without --mesh and --ranks", options.mesh);
  if (options.recipe.batch == 0) options.recipe.batch = kAllRows;
  std::vector<MeshReport> reports;
  for (const char* link : kAllLinks)
    for (const char* mesh : kAllMeshes)
      if (!stop.requested()) reports.push_back(measured(registries, options, mesh, link, stop));
  if (!options.json.empty()) {
    std::string list;
    for (const MeshReport& report : reports) list += (list.empty() ? "[" : ",\n") + to_json(report);
    list += "]\n";
    if (options.json == "-")
      fmt::print("{}", list);
    else
      write_file(options.json, list);
  }
  if (options.json != "-") fmt::print("{}", to_table(reports));
  bool planned = true, stopped = stop.requested();
  for (const MeshReport& report : reports) {
    planned = planned && report.as_planned();
    stopped = stopped || report.stopped;
  }
  if (stopped) return kStopped;
  return planned ? kDone : kWrongResult;
}

int mesh_run(const trainer::Registries& registries, const MeshCommandOptions& options) {
  OutputOptions files;
  files.json = options.json;
  files.check();
  if (const std::string note = load_note(); !note.empty()) trainer::say_note(note);
  const trainer::StopSignals stop;
  if (options.all) return all_meshes_run(registries, options, stop);
  const MeshReport report = measured(registries, options, options.mesh, options.link, stop);
  if (options.json == "-")
    fmt::print("{}", to_json(report));
  else if (!options.json.empty())
    write_file(options.json, to_json(report));
  if (options.json != "-") fmt::print("{}", to_text(report));
  if (report.stopped) return kStopped;
  return report.as_planned() ? kDone : kWrongResult;
}

}  // namespace

void add_mesh(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action) {
  CLI::App* command = bench.add_subcommand(
      "mesh", "Time train steps over ranks with an emulated link, with moves that overlap and that do not");
  auto options = std::make_shared<MeshCommandOptions>();
  options->recipe.add_to(*command);
  command
      ->add_option("--mesh", options->mesh,
                   "The ranks by axis, such as data=2,fsdp=2; -1 is what is left of --ranks")
      ->type_name("AXIS=N,...");
  command
      ->add_option("--ranks", options->ranks, "How many threads are ranks; without --mesh, of the axis data")
      ->check(CLI::Range(2, 64));
  command
      ->add_option(
          "--link", options->link,
          "The link, such as 'latency=0.2ms bandwidth=100MB/s'; or balanced, one over which moving takes "
          "as long as computing, which is measured first (balanced)")
      ->type_name("LINK");
  command
      ->add_option("--slow", options->slow,
                   "RANK:FACTOR,...: what these ranks compute takes so many times longer, by sleeping")
      ->type_name("RANK:FACTOR");
  command->add_option("--steps", options->steps, "Steps of each kind, after a warm-up step (5)")
      ->check(CLI::Range(1, 100000));
  command->add_flag(
      "--all", options->all,
      "Predict, and then run, twelve meshes of up to eight ranks over two links, and print both times");
  add_optional_file(*command, "--json", options->json,
                    "Write JSON to FILE, or to stdout instead of the table");
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  refuse_empty(*command, {"--mesh", "--link", "--slow"});
  command->footer(
      "Ranks are threads of this process, train on random tokens and share its cores; the link sleeps. Steps "
      "that "
      "wait for every\n"
      "move take turns with steps whose moves run while kernels compute; a step takes as long as its slowest "
      "rank. "
      "What the\n"
      "transport counts is compared with the plan; a difference exits with 3.\n"
      "Examples:\n  meshloom bench mesh tiny --device cpu --mesh fsdp=4 --link 'latency=0.2ms "
      "bandwidth=100MB/s'\n"
      "  meshloom bench mesh gpt2-124m --set sequence=128 --mesh fsdp=4 --link balanced --json mesh.json");
  command->callback([=, &action] { action = [=] { return mesh_run(registries, *options); }; });
}

}  // namespace meshloom::bench
