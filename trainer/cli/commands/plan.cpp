#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/cli/command.h"
#include "trainer/cli/inference_recipe.h"
#include "trainer/cli/memory_advice.h"
#include "trainer/cli/plan_serving.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/cli/sample_options.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/cost/measured_links.h"
#include "trainer/compose/report.h"
#include "trainer/config/mesh_modifiers.h"
#include "trainer/execute/commands_of.h"
#include "trainer/io/atomic_file.h"
#include "trainer/planner/picture.h"
#include "trainer/planner/search.h"
#include "trainer/planner/timeline.h"
#include "trainer/rules/resolve.h"
#include "trainer/run/plan_text.h"
#include "trainer/run/state/snapshots.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct PlanOptions {
  RecipeOptions recipe;
  SampleOptions sample;
  bool json = false;
  bool search = false, serve = false;
  EngineOptions engine;
  std::string print_pass, mesh, network, trace, html;
};

struct StepPrediction {
  const hal::Network& network;
  StepTime time;
  double mfu = 0;
};

OrderedJson step_json(const StepPrediction& step) {
  OrderedJson moves = OrderedJson::array();
  for (const auto& [crossing, seconds] : step.time.moves)
    moves.push_back({{"level", crossing.first}, {"axes", crossing.second}, {"seconds", seconds}});
  return {{"network", step.network.name},    {"predicted_seconds", step.time.seconds},
          {"predicted_mfu", step.mfu},       {"critical_stage", step.time.stage},
          {"critical_path", step.time.path}, {"moves", moves}};
}

void print_json(const TrainerConfig& config, const Plan& plan, const hal::DeviceInfo& device, bool fits,
                double flops, double seconds, const PlanSpeed& speed, const SubmissionSummary& submissions,
                const PipelineSummary& pipeline, const std::vector<MemorySuggestion>& help,
                const std::string& command, const StepPrediction& step, const Plan& last) {
  OrderedJson variants = OrderedJson::object();
  const PlanSummary all = summarize(plan);
  for (const auto& [op, summary] : all.ops) {
    OrderedJson chosen = OrderedJson::array(), refused = OrderedJson::array();
    for (const auto& [variant, count] : summary.calls) chosen.push_back(variant);
    for (const auto& [variant, reason] : summary.refused)
      refused.push_back({{"variant", variant}, {"reason", reason}});
    variants[op] = {{"chosen", chosen}, {"calls", summary.calls}, {"refused", refused}};
  }
  OrderedJson would_help = OrderedJson::array();
  for (const MemorySuggestion& suggestion : help)
    would_help.push_back({{"about", suggestion.about},
                          {"command", command + suggestion.shell_arguments()},
                          {"peak_bytes", suggestion.peak_bytes},
                          {"fits", suggestion.fits}});
  OrderedJson stages = OrderedJson::array();
  for (const StageSummary& stage : pipeline.stages)
    stages.push_back({{"layers", stage.layers},
                      {"parameters", stage.parameters},
                      {"peak_bytes", stage.peak_bytes},
                      {"in_flight", stage.slots},
                      {"predicted_seconds", stage.seconds}});
  OrderedJson moves = OrderedJson::object();
  std::map<std::string, std::map<std::string, MovedBytes>> by_program;
  for (const auto& [key, planned] : plan.steps.programs)
    if (key.slot == 0)  // the others move as much
      for (const auto& [axes, moved] : moved_bytes(planned.exchanges))
        by_program[planned.program.name][axes] += moved;
  for (const auto& [program, by_axes] : by_program)
    for (const auto& [axes, moved] : by_axes)
      moves[program][axes] = {{"bytes_out", moved.out},
                              {"bytes_in", moved.in},
                              {"messages_out", moved.messages_out},
                              {"messages_in", moved.messages_in}};
  OrderedJson move_seconds = OrderedJson::object();
  if (plan.mesh.ranks() > 1 && device.is_cpu)  // they are this host's
    for (const auto& [kind, link] : measured_links()) move_seconds[kind] = predicted_move_seconds(plan, link);
  OrderedJson outer = nullptr;
  if (!plan.steps.outer.empty()) {
    const MovedBytes moved = plan.outer_moved_bytes();
    outer = {{"every", plan.steps.outer.front().every},
             {"parts", plan.steps.outer.size()},
             {"bytes_out", moved.out},
             {"bytes_in", moved.in}};
  }
  OrderedJson sequence = nullptr;
  if (config.mesh->seq > 1)
    sequence = {{"order", config.mesh->sequence_order},
                {"first_rank_attention_flops", plan.update_flops_of("flash_attention")},
                {"last_rank_attention_flops", last.update_flops_of("flash_attention")}};
  const OrderedJson json{{"hardware", config.hardware},
                         {"device", plan.device},
                         {"profile", plan.profile},
                         {"dtype", config.dtype},
                         {"parameters", plan.parameter_count()},
                         {"trainable_parameters", plan.trainable_parameter_count()},
                         {"flops_per_step", flops},
                         {"floor_step_seconds", seconds},
                         {"predicted_step_seconds", speed.seconds},
                         {"predicted_tokens_per_second", speed.tokens_per_second},
                         {"predicted_mfu", speed.mfu},
                         {"predicted_by", speed.parts},
                         {"published_step_seconds", speed.published_seconds},
                         {"launches", submissions.launches},
                         {"barriers", submissions.barriers},
                         {"submissions", submissions.count},
                         {"longest_submission_seconds", submissions.longest},
                         {"peak_bytes", plan.peak_bytes},
                         {"device_bytes", memory_limit(device)},
                         {"fits", fits},
                         {"would_help", would_help},
                         {"host_bytes", plan.host.peak_bytes},
                         {"snapshot_bytes", config.snapshot_seconds > 0 ? Snapshots::bytes(plan) : 0},
                         {"mesh", plan.mesh.text()},
                         {"moves", moves},
                         {"outer", outer},
                         {"sequence", sequence},
                         {"predicted_move_seconds", move_seconds},
                         {"step", plan.mesh.ranks() > 1 ? step_json(step) : OrderedJson()},
                         {"staging_bytes", plan.staging_bytes},
                         {"memory", plan.memory},
                         {"memory_max", plan.memory_max},
                         {"variants", variants},
                         {"views", all.views},
                         {"stages", stages},
                         {"predicted_bubbles", pipeline.bubbles},
                         {"notes", plan.notes}};
  fmt::print("{}\n", json.dump(2));
}

// The network that is asked for, or measured between threads of this host, or that of the profile.
hal::Network network_for(const PlanOptions& options, const hal::DeviceInfo& device) {
  if (!options.network.empty()) return hal::find_network(options.network);
  if (device.is_cpu)
    if (const auto links = measured_links(); links.count(kThreadLink) != 0) {
      hal::NetworkLevel level = level_of(links.at(kThreadLink));
      level.name = "threads";
      return {"measured between threads", "", {}, {level}};
    }
  return hal::network_of_profile(device.profile.name);
}

// What the time rests on: "fitted", or "measured, fitted".
std::string basis_text(const PlanSpeed& speed) {
  std::string text;
  for (const auto& [basis, seconds] : speed.parts) text += (text.empty() ? "" : ", ") + basis;
  return text.empty() ? "unknown" : text;
}

std::string step_text(const TrainerConfig& config, const Plan& plan, const StepPrediction& step,
                      const PlanSpeed& speed) {
  if (plan.mesh.ranks() == 1) return "";
  const StepTime& time = step.time;
  std::string text = fmt::format(
      "step time   predicted {:.4g} s, {:.4g} tokens/s over {} ranks{} (calls {}; moves by network {})\n",
      time.seconds, static_cast<double>(config.batch * config.sequence) / time.seconds, plan.mesh.ranks(),
      step.mfu > 0 ? fmt::format(", MFU {:.1f} %", 100 * step.mfu) : "", basis_text(speed),
      step.network.name);
  std::string path;
  for (const auto& [what, seconds] : time.path)
    path += fmt::format("{}{} {:.1f} %", path.empty() ? "" : ", ", what, 100 * seconds / time.seconds);
  text += fmt::format("  critical path of stage {}: {}\n", time.stage, path);
  for (const auto& [crossing, seconds] : time.moves)
    text += fmt::format("  {:<12} crosses {}, {:.4g} s a step with nothing beside\n", crossing.second,
                        crossing.first, seconds);
  return text;
}

// Prints the best meshes for the ranks of the selector or of --mesh.
int search_run(const Registries& registries, const PlanOptions& options, RecipeOptions recipe) {
  const std::string command = "meshloom plan" + options.recipe.shell_arguments();
  const TrainerConfig config = recipe.resolved(registries);
  const std::unique_ptr<hal::Device> device = open_device(config, registries.devices, say_note);
  const std::int64_t ranks = options.mesh.empty() ? devices_of(config.hardware) : config.mesh->size();
  const MeshSearch search = search_meshes(config, ranks, device->info(), registries.catalog,
                                          registries.classes, network_for(options, device->info()));
  fmt::print("{}", search_text(search, command));
  return search.best.empty() ? 2 : 0;
}

int plan_run(const Registries& registries, const PlanOptions& options) {
  RecipeOptions recipe = options.recipe;
  recipe.set_mesh(options.mesh, 0);
  recipe.hardware.ranks = true;
  if (options.search) return search_run(registries, options, std::move(recipe));
  if (options.serve) {
    recipe.inference = true;
    const TrainerConfig config = recipe.resolved(registries);
    const std::unique_ptr<hal::Device> device = open_device(config, registries.devices, say_note);
    return plan_serving(config, options.engine, registries, device->info(), options.json);
  }
  const ComposeRun composes = composes_with(options.sample, registries);
  const auto [asked, config, device] = recipe.opened(registries, {.compose = composes});
  ComposeOptions compose = config.compose_options();
  compose.enforce_memory = false;
  PassTrace trace;
  const bool printing = !options.print_pass.empty();
  const Plan plan = compose_run(config, compose, options.sample, registries.catalog, device->info(),
                                printing ? &trace : nullptr);
  for (const std::string& note : plan.notes) say_note(note);
  if (printing) {
    std::set<std::string> passes;
    for (const PassTrace::Entry& entry : trace.entries) {
      passes.insert(entry.pass);
      if (options.print_pass == "all" || entry.pass == options.print_pass)
        fmt::print("# {} after {}\n{}\n", entry.program, entry.pass, entry.text);
    }
    if (options.print_pass != "all" && !passes.count(options.print_pass)) {
      std::string known;
      for (const std::string& pass : passes) known += (known.empty() ? "" : ", ") + pass;
      throw Error("--print-pass", "must be all or one of " + known, "'" + options.print_pass + "'");
    }
    return 0;
  }
  const std::int64_t available_bytes = memory_limit(device->info());
  const bool fits = available_bytes <= 0 || plan.peak_bytes <= available_bytes;
  const std::vector<Plan> of_stages = plan.mesh.ranks() == 1
                                          ? std::vector<Plan>{}
                                          : stage_plans(config, registries.catalog, device->info(), &plan);
  const PipelineSummary pipeline =
      plan.stages.empty() ? PipelineSummary{} : summarize_pipeline(config, of_stages);
  const std::vector<const Plan*> stages =
      of_stages.empty() ? std::vector<const Plan*>{&plan} : pointers_to(of_stages);
  const hal::Network network = network_for(options, device->info());
  const bool pictures = !options.trace.empty() || !options.html.empty();
  StepPrediction step{network, simulate_step(stages, network, device->info(), pictures)};
  step.mfu = mfu_of(config, stages, step.time.seconds, device->info());
  const double flops = plan.update_flops();
  const double seconds = plan.update_roofline_seconds();
  const std::string command = "meshloom plan" + recipe.shell_arguments();
  const std::vector<MemorySuggestion> help =
      fits ? std::vector<MemorySuggestion>{}
           : suggest_less_memory(registries, asked, device->info(), composes);
  if (options.json) {
    const SubmissionSummary submissions = has_submissions(device->info())
                                              ? submissions_of(plan, registries.catalog, device->info(),
                                                               hal::SubmissionSettings::from_environment())
                                              : SubmissionSummary{};
    print_json(config, plan, device->info(), fits, flops, seconds, speed_of(config, plan, device->info()),
               submissions, pipeline, help, command, step, *stages.front());
  } else {
    fmt::print("{}{}{}{}{}", plan_text(config, plan, device->info()),
               sequence_text(config, plan, *stages.front()), pipeline_text(config, pipeline),
               step_text(config, plan, step, speed_of(config, plan, device->info())),
               submissions_text(plan, registries.catalog, device->info()));
    if (!help.empty()) fmt::print("what would help, with the memory that it needs\n");
    for (const MemorySuggestion& suggestion : help)
      fmt::print("  {}\n    {}{}\n", suggestion.text(), command, suggestion.shell_arguments());
  }
  const std::string title = (recipe.recipe.empty() ? "plan" : recipe.recipe) + " on " + config.hardware +
                            (plan.mesh.ranks() > 1 ? ", " + plan.mesh.text() : "");
  if (!options.trace.empty()) write_file(options.trace, step_trace(step.time, title));
  if (!options.html.empty())
    write_file(
        options.html,
        step_html(step.time, title, step_text(config, plan, step, speed_of(config, plan, device->info()))));
  std::fflush(stdout);
  try {
    require_memory(plan, compose, device->info());
  } catch (const hal::OutOfMemory& error) {
    say_error(error.what());
    return 2;
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command = app.add_subcommand(
      "plan", "Show the memory that a run needs and the kernels that it gets, without running it");
  auto options = std::make_shared<PlanOptions>();
  options->recipe.add_to(*command);
  command
      ->add_option(
          "--init", options->recipe.init,
          "A checkpoint, such as an imported one. Without a recipe, its own is used, as by train --init")
      ->type_name("DIR");
  command
      ->add_option(
          "--mesh", options->mesh,
          "The ranks by axis, such as data=2,fsdp=2: the plan is that of the first rank, with what it moves")
      ->type_name("AXIS=N,...");
  command
      ->add_option(
          "--network", options->network,
          "The network between ranks, such as h100-8, tpu-v5p or ethernet-10g: what predicts the time of "
          "moves. Without it, that of the profile, or for processors the one that bench collectives measured")
      ->type_name("NAME");
  command->add_flag(
      "--search", options->search,
      "Print the five fastest of all meshes, rematerialisations and micro-batches that fit, for the "
      "devices that the selector names or the ranks of --mesh");
  CLI::Option* serve = command->add_flag(
      "--serve", options->serve,
      "Show the memory and the kernels of `meshloom serve` instead, and how many tokens its caches hold");
  for (CLI::Option* option : add_engine_options(*command, options->engine)) option->needs(serve);
  CLI::Option* every = add_sample_every(
      *command, options->sample,
      "With the programs and caches of `train --sample-every`, which are the same for every time but 0");
  add_sample_tokens(*command, options->sample, "Tokens of such a text, as of `train --sample`")->needs(every);
  command
      ->add_option("--trace", options->trace,
                   "Write the predicted step of each stage to this file, for chrome://tracing and Perfetto")
      ->type_name("FILE");
  command
      ->add_option("--html", options->html, "Write the predicted step to this file, as a page with a picture")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print a JSON object");
  command->add_option("--print-pass", options->print_pass,
                      "Print the programs after this pass of the composer (or 'all') instead");
  for (const char* of_a_step :
       {"--search", "--mesh", "--network", "--trace", "--html", "--print-pass", "--sample-every"})
    serve->excludes(command->get_option(of_a_step));
  command->footer(
      "The memory is what the run's plan allocates on the device, to the byte. The device null stands for "
      "one "
      "that is not\n"
      "present, with the limits and features of its driver: null or null:vulkan, null:opencl, null:cpu, with "
      "--as PROFILE; a\n"
      "driver by its name, such as null:lavapipe; or null:FILE, the device that `meshloom devices "
      "--describe` "
      "wrote there.\n"
      "The floor of a step's time follows from FLOPs and bytes and the profile's numbers for the units that "
      "the chosen\n"
      "kernels use. The predicted time is the sum of its calls: as `meshloom bench calibrate` or `bench "
      "tune` "
      "measured them\n"
      "on this device (measured), scaled from other sizes (similar), or by efficiencies that such kernels "
      "reach elsewhere\n"
      "(fitted). Exits with 2 when the plan does not fit into the device's memory, after printing commands "
      "that would help.\n"
      "Examples:\n  meshloom plan smollm2-135m --device null --as h100   # needs no hardware\n"
      "  meshloom plan tiny --selector null-h100-8 --batch 8 --search\n"
      "  meshloom plan smollm2-135m --device null:opencl --as rtx4090 --set dtype=bf16\n"
      "  meshloom plan smollm2-135m --serve --device null --as rtx4090 --max-length 4096 --max-sequences 32\n"
      "  meshloom plan --init smol --device null --as rx7900xtx --modify 'Adapt{with=Lora{rank=8}}'");
  command->callback([=, &action] { action = [=] { return plan_run(registries, *options); }; });
}

}  // namespace meshloom::trainer
