#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "hal/transport/ranks.h"
#include "trainer/cli/command.h"
#include "trainer/cli/link_options.h"
#include "trainer/cli/memory_advice.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/cli/sample_options.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/execute/agreed_error.h"
#include "trainer/io/shell_word.h"
#include "trainer/run/rank_devices.h"
#include "trainer/run/ranks.h"
#include "trainer/run/stop.h"
#include "trainer/run/train.h"

namespace meshloom::trainer {
namespace {

struct TrainCommandOptions {
  RecipeOptions recipe;
  TrainOptions train;
  bool json = false;
  std::string mesh;  // "data=2,fsdp=2"; "" = the recipe's
  int ranks = 0;     // as threads; 0 = as the mesh says
  LinkOptions link;
  std::optional<std::string> rank_devices;

  // By rank; none = all open the device that the recipe is resolved for. Throws Error.
  std::vector<RankDevice> devices() const {
    if (!rank_devices) return {};
    if (recipe.names_device())
      throw Error("--rank-devices", "names every device; --device and --selector must not be given besides");
    return parse_rank_devices(*rank_devices);
  }
};

// What one rank of this process runs with.
struct RankRun {
  RecipeOptions::Opened opened;
  bool named = false;  // --rank-devices names the device by its index
};

void print_json(const TrainResult& result, const TrainOptions& options) {
  nlohmann::ordered_json json{{"out", options.out},
                              {"checkpoint", result.checkpoint},
                              {"step", result.step},
                              {"loss", result.loss},
                              {"stopped", result.stopped}};
  for (const auto& [name, value] :
       {std::pair("eval_loss", result.eval_loss), std::pair("reward", result.reward),
        std::pair("eval_reward", result.eval_reward)})
    if (value) json[name] = *value;
  if (result.stopped) json["go_on_with"] = options.command;
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

// The user's command, with --resume and the directory.
std::string command_to_continue(const TrainCommandOptions& options) {
  return "meshloom train" + options.recipe.shell_arguments() +
         (options.mesh.empty() ? "" : " --mesh " + shell_word(options.mesh)) +
         (options.ranks > 0 ? fmt::format(" --ranks {}", options.ranks) : "") +
         (options.rank_devices ? " --rank-devices " + shell_word(*options.rank_devices) : "") +
         (options.recipe.reward.empty() || options.train.reward_seconds == TrainOptions{}.reward_seconds
              ? ""
              : fmt::format(" --reward-seconds {}", options.train.reward_seconds)) +
         options.link.shell_arguments() + " --out " + shell_word(options.train.out) + " --resume";
}

// out/NAME, or out/NAME-2, ... if that exists.
std::string free_directory(const RecipeOptions& recipe) {
  const std::string name =
      "out/" + (!recipe.recipe.empty()   ? recipe.recipe
                : !recipe.config.empty() ? std::filesystem::path(recipe.config).stem().string()
                                         : std::filesystem::path(recipe.init).filename().string() + "-tuned");
  std::string path = name;
  for (int i = 2; std::filesystem::exists(path); ++i) path = fmt::format("{}-{}", name, i);
  return path;
}

// The recipe of the run that is continued; none for a new run.
std::optional<TrainerConfig> started_recipe(const TrainOptions& options, const Registries& registries) {
  const std::string file = options.out + "/" + kRunRecipe;
  if (!(options.resume || options.auto_resume) || !std::filesystem::exists(file)) return std::nullopt;
  return read_recipe(file, "'" + file + "'", registries.classes);
}

// Of those that share the cores of a host.
bool on_host(const RankDevice& device) { return device.device.substr(0, device.device.find(':')) == "cpu"; }

void require_device_per_rank(const std::vector<RankDevice>& devices, std::int64_t ranks) {
  if (!devices.empty() && static_cast<std::int64_t>(devices.size()) != ranks)
    throw Error("--rank-devices", fmt::format("must name a device for each of the job's {} ranks", ranks),
                fmt::format("{}", devices.size()));
}

RecipeOptions::Opened open_run(const Registries& registries, const TrainCommandOptions& options) {
  const std::optional<TrainerConfig> started = started_recipe(options.train, registries);
  return options.recipe.opened(registries, {.compose = composes_with(options.train.sample, registries),
                                            .started = started ? &*started : nullptr});
}

// Notes which devices the ranks have, where they differ. Throws Error where two share a GPU unasked.
void check_devices(hal::Transport& transport, const RankRun& run, double patience) {
  const std::string unlike = require_own_devices(transport, run.opened.device->info(), run.named,
                                                 run.opened.config.hardware, patience);
  if (transport.rank() == 0 && !unlike.empty()) say_note(unlike);
}

// This process is one rank of a job, which a launcher started.
int train_as_rank(const Registries& registries, TrainCommandOptions options) {
  std::unique_ptr<hal::Transport> transport = connect_to_ranks();
  const int rank = transport->rank();
  const bool first = rank == 0;
  if (!first) mute_notes();
  options.train.transport = transport.get();
  RankRun run;
  const auto agreed = [&](const std::function<void()>& body) {
    std::string own;
    try {
      body();
    } catch (const std::exception& error) {
      own = error.what();
    }
    const std::string error = agreed_error(*transport, own, options.train.patience);
    if (first && !error.empty()) say_error(error);
    return error.empty();
  };
  const bool opened = agreed([&] {
    if (options.ranks > 0) throw Error("--ranks", "must not be given where a launcher starts the ranks");
    if (options.train.out.empty())
      throw Error("--out", "must be given where a launcher starts the ranks", "none");
    options.train.command = command_to_continue(options);
    const std::vector<RankDevice> devices = options.devices();
    require_device_per_rank(devices, transport->size());
    std::int64_t sharing = 0;
    for (int other = 0; other < transport->size(); ++other)
      sharing += transport->peer(other).node == transport->peer(rank).node &&
                 (devices.empty() || on_host(devices[static_cast<std::size_t>(other)]));
    share_cores(sharing);
    if (!devices.empty()) {
      options.recipe.hardware.device = devices[static_cast<std::size_t>(rank)].device;
      run.named = devices[static_cast<std::size_t>(rank)].indexed;
    }
    options.link.check(transport->size());
    options.recipe.set_mesh(options.mesh, transport->size());
    run.opened = open_run(registries, options);
    run.opened.config.snapshot_seconds = 0;
    if (run.opened.config.mesh->size() != transport->size())
      throw Error("mesh", "must have as many ranks as the job, " + std::to_string(transport->size()),
                  std::to_string(run.opened.config.mesh->size()));
  });
  if (!opened) return 1;
  run.opened.device = options.link.slowed(std::move(run.opened.device), rank, transport->size());
  transport = options.link.wrapped(std::move(transport));
  options.train.transport = transport.get();
  if (!agreed([&] { check_devices(*transport, run, options.train.patience); })) return 1;
  TrainerConfig& config = run.opened.config;
  try {
    if (!first) {
      const StopSignals ignored;  // rank 0 hears them
      follow(config, options.train, *run.opened.device, registries.catalog, registries.classes);
      return 0;
    }
    const TrainResult result =
        train(config, options.train, run.opened.device, registries.catalog, registries.classes, say_note);
    if (options.json) print_json(result, options.train);
    return result.stopped ? 130 : 0;
  } catch (const AgreedError& error) {
    if (first) say_error(error.what());
    return 1;
  } catch (const std::exception& error) {
    transport->abort(error.what());
  }
}

// What each rank runs with, where all are threads of this process; rank 0 is open already. Ranks that name the same device are
// resolved once, and notes are those of rank 0.
std::vector<RankRun> open_other_ranks(const Registries& registries, TrainCommandOptions options,
                                      RecipeOptions::Opened first, const std::vector<RankDevice>& devices) {
  const auto ranks = static_cast<std::size_t>(first.config.mesh->size());
  require_device_per_rank(devices, static_cast<std::int64_t>(ranks));
  std::vector<RankRun> runs(ranks);
  runs[0].opened = std::move(first);
  mute_notes();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    RankRun& run = runs[rank];
    const auto alike = [&](std::size_t other) {
      return devices.empty() || devices[other].device == devices[rank].device;
    };
    std::size_t known = 0;
    while (!alike(known)) ++known;
    if (!devices.empty()) run.named = devices[rank].indexed;
    if (known < rank) {
      run.opened.config = runs[known].opened.config;
      run.opened.device = open_device(run.opened.config, registries.devices);
    } else if (rank > 0) {
      options.recipe.hardware.device = devices[rank].device;
      run.opened = open_run(registries, options);
    }
    run.opened.config.snapshot_seconds = 0;
  }
  mute_notes(false);
  return runs;
}

// All ranks are threads of this process.
int train_as_threads(const Registries& registries, const TrainCommandOptions& options,
                     std::vector<RankRun> runs) {
  TrainResult result;
  const auto ranks = static_cast<int>(runs.size());
  for (int rank = 0; rank < ranks; ++rank) {
    std::unique_ptr<hal::Device>& device = runs[static_cast<std::size_t>(rank)].opened.device;
    device = options.link.slowed(std::move(device), rank, ranks);
  }
  run_ranks_as_threads(ranks, [&](std::unique_ptr<hal::Transport> plain) {
    const std::unique_ptr<hal::Transport> transport = options.link.wrapped(std::move(plain));
    RankRun& run = runs[static_cast<std::size_t>(transport->rank())];
    TrainOptions own = options.train;
    own.transport = transport.get();
    check_devices(*transport, run, own.patience);
    auto& [asked, config, device] = run.opened;
    if (transport->rank() == 0) {
      result = train(config, own, device, registries.catalog, registries.classes, say_note);
      return;
    }
    try {
      follow(config, own, *device, registries.catalog, registries.classes);
    } catch (const hal::JobAborted&) {
      throw;
    } catch (const AgreedError&) {
      throw;
    } catch (const Error& error) {
      throw Error(transport->name(transport->rank()) + ": " + error.where(), error.rule(), error.found());
    }
  });
  if (options.json) print_json(result, options.train);
  return result.stopped ? 130 : 0;
}

int train_run(const Registries& registries, TrainCommandOptions options) {
  options.train.silent = options.json;
  options.train.init = options.recipe.init;
  options.train.reward = options.recipe.reward;
  if (launcher_of_ranks()) return train_as_rank(registries, std::move(options));
  if (options.train.out.empty()) {
    if (options.train.resume || options.train.auto_resume)
      throw Error(options.train.resume ? "--resume" : "--auto-resume",
                  "needs --out, the directory of the run", "none");
    options.train.out = free_directory(options.recipe);
  }
  if (options.train.allow_rounding && !options.train.resume && !options.train.auto_resume)
    throw Error("--allow-rounding", "needs --resume or --auto-resume", "neither");
  options.train.command = command_to_continue(options);
  const std::vector<RankDevice> devices = options.devices();
  // Where nothing else says how many ranks there are, the devices do.
  const bool open_mesh = options.mesh.empty() || options.mesh.find("-1") != std::string::npos;
  std::int64_t ranks = options.recipe.set_mesh(options.mesh, options.ranks == 0 && open_mesh
                                                                 ? static_cast<std::int64_t>(devices.size())
                                                                 : options.ranks);
  const auto share = [&] {
    share_cores(devices.empty() ? ranks : std::count_if(devices.begin(), devices.end(), on_host));
  };
  if (ranks > 1) share();
  for (const std::string& file : options.recipe.data)
    if (file.empty()) throw Error("--data", "must name a file", "an empty name");
  if (!devices.empty()) options.recipe.hardware.device = devices.front().device;
  RecipeOptions::Opened run = open_run(registries, options);
  options.link.check(static_cast<int>(run.config.mesh->size()));
  if (const std::int64_t size = run.config.mesh->size(); size > 1) {
    if (ranks < 2) {  // the recipe, or a rule of it, has the mesh
      ranks = size;
      share();
      mute_notes();
      run = open_run(registries, options);
      mute_notes(false);
    }
    return train_as_threads(registries, options,
                            open_other_ranks(registries, options, std::move(run), devices));
  }
  options.train.open_device = [&] { return open_device(run.config, registries.devices); };
  options.train.leave = [&](const TrainResult& result, int code) {
    if (options.json) print_json(result, options.train);
    std::fflush(stdout);
    ::_exit(code);  // the device may hold on to the other threads
  };
  const hal::DeviceInfo info = run.device->info();
  try {
    const TrainResult result =
        train(run.config, options.train, run.device, registries.catalog, registries.classes, say_note);
    if (options.json) print_json(result, options.train);
    return result.stopped ? 130 : 0;
  } catch (const hal::OutOfMemory&) {
    const std::string more = " --out " + shell_word(options.train.out);
    for (const MemorySuggestion& suggestion :
         suggest_less_memory(registries, run.asked, info, composes_with(options.train.sample, registries)))
      say_note(suggestion.text() + ": meshloom train" + options.recipe.shell_arguments() +
               suggestion.shell_arguments() + more);
    throw;
  }
}

}  // namespace

void add_train(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command = app.add_subcommand("train", "Train a recipe on text, or fine-tune on examples");
  auto options = std::make_shared<TrainCommandOptions>();
  options->recipe.add_to(*command);
  options->recipe.add_run_to(*command);
  command
      ->add_option("--out", options->train.out,
                   "Directory for checkpoints, metrics.jsonl, TensorBoard events and loss.svg (out/RECIPE)")
      ->type_name("DIR");
  auto* resume = command->add_flag("--resume", options->train.resume,
                                   "Continue from the newest whole and healthy checkpoint in --out");
  command
      ->add_flag("--auto-resume", options->train.auto_resume,
                 "Resume if --out has a checkpoint, otherwise start: the same command for a job that a "
                 "scheduler restarts")
      ->excludes(resume);
  command
      ->add_option("--reward", options->recipe.reward,
                   "Learn from the model's own answers to the prompts of --data: a program that reads a JSON "
                   "object from each "
                   "line, with the members \"example\" (the prompt's line) and \"completion\", and writes a "
                   "reward, a number, on a "
                   "line each. It is never part of a recipe")
      ->type_name("COMMAND");
  command
      ->add_option("--reward-seconds", options->train.reward_seconds,
                   "Seconds for which that program may be silent while a reward is awaited")
      ->check(CLI::PositiveNumber)
      ->type_name("SECONDS")
      ->capture_default_str();
  command->add_flag(
      "--allow-rounding", options->train.allow_rounding,
      "Resume even if hardware, driver, kernels or program differ from those of the checkpoint; "
      "results then differ by rounding");
  add_sample_tokens(*command, options->train.sample, "Tokens of text to generate at the end");
  add_sample_every(
      *command, options->train.sample,
      "Also generate text after so many seconds of training, again and again; 0 = at the end only");
  command
      ->add_option("--mesh", options->mesh,
                   "The ranks by axis, such as data=2,fsdp=2; -1 is what is left. Without a launcher, ranks "
                   "are threads of this "
                   "process. Built are data (rows), fsdp (rows, and parts of parameters and optimizer), "
                   "model (heads, features and vocabulary) and pipeline (layers)")
      ->type_name("AXIS=N,...");
  command
      ->add_option("--ranks", options->ranks, "How many threads are ranks; without --mesh, of the axis data")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option(
          "--rank-devices", options->rank_devices,
          "Which device each rank opens, such as '0:vulkan:0 1:opencl:0 2-3:cpu'; rules edit the recipe "
          "for the hardware of each. A device that is named with its index may serve several ranks")
      ->type_name("'RANKS:DEVICE ...'");
  command
      ->add_option(
          "--patience", options->train.patience,
          "Seconds for which another rank may owe a message before the run ends with an error that names it")
      ->check(CLI::PositiveNumber)
      ->type_name("SECONDS")
      ->capture_default_str();
  options->link.add_to(*command);
  command->add_flag_callback(
      "--no-overlap", [overlap = &options->train.overlap] { *overlap = false; },
      "Compute nothing while something moves between ranks, to compare: it gives the same bits");
  command->add_flag("--quiet", options->train.quiet, "Print only notes and errors");
  command->add_flag(
      "--json", options->json,
      "Print a JSON object at the end, and nothing else but notes and errors; metrics.jsonl has every "
      "step");
  command->footer(
      "Ctrl-C saves a checkpoint, prints the command that continues the run, and exits with 130; so do the "
      "signals TERM, HUP,\n"
      "USR1, USR2, XCPU and ALRM. An unfinished step is left after its micro-batch; one that takes "
      "longer than a\n"
      "second is dropped at once, and what was copied to the host's memory last is saved "
      "(snapshot_seconds).\n"
      "A second INT or TERM ends the program at once without a checkpoint. Exit codes: 0 done, 1 an error "
      "(the "
      "last whole step\n"
      "is saved if disk and device allow it), 2 usage, 130 stopped by a signal. The same recipe, seed and "
      "device give the same\n"
      "bits, also after --resume.\n"
      "Examples:\n  meshloom train tiny --data text.txt --out run\n"
      "  meshloom train tiny --data text.txt --device opencl:0 --as tpu-v5e --steps 30\n"
      "  meshloom train byte-llama-10m --data a.txt b.txt --selector vulkan-rx7900xtx-1 --batch 32\n"
      "  meshloom train --init smol --data pairs.jsonl --out tuned --epochs 3 --set input.prompt=question "
      "--set input.completion=answer\n"
      "  meshloom train --init smol --data prompts.jsonl --batch 16 --set model.loss=GRPOLoss{} --reward "
      "'python3 reward.py'");
  command->callback([=, &action] { action = [=] { return train_run(registries, *options); }; });
}

}  // namespace meshloom::trainer
