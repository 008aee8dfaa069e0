#include "trainer/planner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/passes/distributed/partition.h"
#include "trainer/compose/report.h"
#include "trainer/io/shell_word.h"
#include "trainer/io/units.h"
#include "trainer/planner/move_times.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kEstimated = 40, kComposed = 6, kShown = 5;
constexpr std::int64_t kMaxStages = 16, kMaxMicroBatches = 128;
constexpr double kReached = 0.5;  // of the peak, by the rough estimate

struct Recompute {
  const char *remat, *about;
  double flops;  // times as many as without
};
constexpr Recompute kRecompute[] = {
    {"[]", "nothing recomputed", 1},
    {"[RematRule{tag=\"**norm\" policy=recompute}, RematRule{tag=feed_forward.hidden policy=recompute}]",
     "norms and hidden values recomputed", 1.02},
    {"[RematRule{policy=recompute}]", "all recomputed", 4.0 / 3}};

struct Choice {
  MeshConfig mesh;
  std::size_t recompute = 0;
  std::int64_t accumulation = 1;
  double seconds = 0;  // estimated
};

// What the estimate needs to know of a model.
struct Sizes {
  std::int64_t layers = 0, parameters = 0, trained = 0, tokens = 0;
  bool experts = false;        // whether the model has any
  double flops = 0, peak = 0;  // of a step; of a device
  std::int64_t memory = 0;     // of a device; 0 = without limit
};

std::int64_t layers_of(const layers::Config& model) {
  std::int64_t layers = 0;
  layers::visit(model, [&](const std::string&, const layers::Config& node) {
    if (node.class_name() == "Stack")
      layers = std::max<std::int64_t>(layers, std::stoll(layers::get(node, "num_layers")));
  });
  return layers;
}

void set_layers(TrainerConfig& config, std::int64_t layers, const layers::ClassTable& classes) {
  std::vector<std::string> paths;
  layers::visit(config, [&](const std::string& path, const layers::Config& node) {
    if (node.class_name() == "Stack") paths.push_back(path);
  });
  for (const std::string& path : paths)
    layers::set(config, path + ".num_layers", std::to_string(layers), classes);
}

Sizes sizes_of(const TrainerConfig& config, const kernels::Catalog& catalog, const hal::DeviceInfo& device) {
  Sizes sizes;
  sizes.layers = layers_of(*config.model);
  for (const layers::ParameterInfo& info :
       layers::trace_logits(*config.model, catalog, 1, config.sequence, config.input->source(config.sequence))
           .parameters) {
    sizes.parameters += info.count();
    sizes.experts = sizes.experts || (!info.axes.empty() && info.axes[0] == "expert");
    if (!info.frozen) sizes.trained += info.count();
  }
  sizes.tokens = config.batch * config.sequence;
  sizes.flops = 6.0 * static_cast<double>(sizes.parameters) * static_cast<double>(sizes.tokens);
  sizes.peak = hal::peak_flops(device.profile, config.compose_options().dtype);
  sizes.memory = memory_limit(device);
  return sizes;
}

// All ways to write `ranks` as a product of axis sizes. Where there are no experts, their axis would be another one of data.
std::vector<MeshConfig> meshes_of(std::int64_t ranks, const MeshConfig& like, bool experts) {
  std::vector<MeshConfig> found;
  std::vector<std::int64_t MeshConfig::*> fields{&MeshConfig::pipeline, &MeshConfig::data, &MeshConfig::fsdp,
                                                 &MeshConfig::seq, &MeshConfig::model};
  if (experts) fields.push_back(&MeshConfig::expert);
  const auto fill = [&](auto&& self, MeshConfig mesh, std::size_t axis, std::int64_t rest) -> void {
    if (axis == fields.size()) {
      if (rest == 1) found.push_back(mesh);
      return;
    }
    for (std::int64_t size = 1; size <= rest; ++size) {
      if (rest % size != 0) continue;
      mesh.*fields[axis] = size;
      self(self, mesh, axis + 1, rest / size);
    }
  };
  MeshConfig none = like;
  for (const auto field : fields) none.*field = 1;
  fill(fill, none, 0, ranks);
  return found;
}

double ratio(std::int64_t a, std::int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

// Seconds of one rank's step, roughly: FLOPs at half of the peak; in every micro-batch parameters gathered three times over fsdp
// and gradients scattered once; gradients added up and parameters copied over the axes that have copies; rows gathered over model
// eight times a layer, and keys and values over seq three times; a pipeline's bubble. Moves of parameters count beside computing
// where they are longer.
double estimate(const Choice& choice, const Sizes& sizes, const hal::Network& network) {
  const MeshConfig& mesh = choice.mesh;
  const Topology topology(mesh.axes());
  const MoveTimes times(network, topology);
  const auto seconds = [&](AxisName axis, double bytes, double count) {
    const int ranks = topology.size(axis);
    if (ranks == 1) return 0.0;
    const auto moved = static_cast<std::int64_t>(bytes * (ranks - 1) / ranks);
    double longest = 0;
    for (const LevelMoves& part : times.exchange(axis, {moved, moved, ranks - 1, ranks - 1}))
      longest = std::max(longest, part.seconds);
    return count * longest;
  };
  const auto accumulation = static_cast<double>(choice.accumulation);
  const double stages = static_cast<double>(mesh.pipeline),
               layers = static_cast<double>(sizes.layers) / stages;
  const double of_layer = ratio(sizes.parameters, mesh.pipeline * mesh.model) / layers;
  const double width = std::sqrt(ratio(sizes.parameters, 12 * sizes.layers));
  const double rows = ratio(sizes.tokens, mesh.data * mesh.expert * mesh.fsdp * mesh.seq) / accumulation;
  const double computing = sizes.flops * kRecompute[choice.recompute].flops / kReached / sizes.peak /
                           static_cast<double>(mesh.size());
  const auto copies = [&](AxisName axis) {
    return seconds(axis, 4 * of_layer / static_cast<double>(mesh.fsdp), 2);
  };
  const double beside = layers * (seconds(AxisName::fsdp, 2 * of_layer, 2 * accumulation) +
                                  seconds(AxisName::fsdp, 4 * of_layer, 1 + accumulation) +
                                  copies(AxisName::data) + copies(AxisName::expert) + copies(AxisName::seq));
  const double before =
      layers * (seconds(AxisName::model, 2 * width * rows, 8 * accumulation) +
                seconds(AxisName::seq, 4 * width * rows * static_cast<double>(mesh.seq), 3 * accumulation));
  return (std::max(computing, beside) + before) * (accumulation + stages - 1) / accumulation;
}

// Bytes that a rank has whatever it recomputes: parameters, gradients and two moments, in f32, and what is frozen in 16 bits.
double memory_floor(const Choice& choice, const Sizes& sizes) {
  const MeshConfig& mesh = choice.mesh;
  const std::int64_t parts = mesh.pipeline * mesh.model,
                     copies = mesh.data * mesh.expert * mesh.fsdp * mesh.seq;
  const double gradients = mesh.fsdp > 1 || choice.accumulation == 1
                               ? 4 * ratio(sizes.trained, parts * copies)
                               : 4 * ratio(sizes.trained, parts);
  return 4 * ratio(sizes.trained, parts * mesh.fsdp) + gradients + 8 * ratio(sizes.trained, parts * copies) +
         2 * ratio(sizes.parameters - sizes.trained, parts * mesh.fsdp);
}

TrainerConfig with(const TrainerConfig& config, const Choice& choice, const layers::ClassTable& classes) {
  TrainerConfig tree = config;
  tree.fit = false;
  tree.mesh = choice.mesh;
  tree.accumulation = choice.accumulation;
  layers::set(tree, "remat", kRecompute[choice.recompute].remat, classes);
  return tree;
}

// Of few layers, without a pipeline.
struct Small {
  double seconds = 0;  // of one micro-batch of all that are, the update in it
  std::map<std::string, std::int64_t> memory;
  std::int64_t peak = 0;
};

int rank_of_stage(const MeshConfig& mesh, int stage) {
  const Topology topology(mesh.axes());
  return static_cast<int>(stage * topology.stride(AxisName::pipeline) +
                          (mesh.seq - 1) * topology.stride(AxisName::seq));
}

Small compose_small(TrainerConfig config, std::int64_t layers, const kernels::Catalog& catalog,
                    const hal::DeviceInfo& device, const layers::ClassTable& classes,
                    const hal::Network& network) {
  set_layers(config, layers, classes);
  ComposeOptions options = config.compose_options();
  options.enforce_memory = options.evaluation = options.verify_passes = false;
  options.rank = rank_of_stage(*config.mesh, 0);
  const Plan plan = compose_training(*config.model, *config.learner, options, catalog, device);
  return {simulate_step({&plan}, network, device).seconds, plan.memory, plan.peak_bytes};
}

struct Guess {
  Choice choice;
  double seconds = 0;
  std::int64_t peak = 0;
};

Guess guess(const TrainerConfig& config, const Choice& choice, const Sizes& sizes,
            const kernels::Catalog& catalog, const hal::DeviceInfo& device, const layers::ClassTable& classes,
            const hal::Network& network) {
  Choice flat = choice;  // a stage alone
  flat.mesh.pipeline = 1;
  const TrainerConfig tree = with(config, flat, classes);
  const Small one = compose_small(tree, 1, catalog, device, classes, network),
              two = compose_small(tree, 2, catalog, device, classes, network);
  const std::int64_t stages = choice.mesh.pipeline;
  const double further = static_cast<double>(sizes.layers) / static_cast<double>(stages) - 1;
  const double alone = one.seconds + further * std::max(0.0, two.seconds - one.seconds);
  const auto micro = static_cast<double>(choice.accumulation);
  double peak = static_cast<double>(one.peak) + further * static_cast<double>(two.peak - one.peak);
  if (stages > 1) {  // every micro-batch in flight keeps its activations
    const auto kept = [](const Small& small) {
      const auto found = small.memory.find("activations");
      return found == small.memory.end() ? 0.0 : static_cast<double>(found->second);
    };
    peak += (std::min(micro, static_cast<double>(stages)) - 1) * (further + 1) *
            std::max(0.0, kept(two) - kept(one));
  }
  return {choice, alone * (micro + static_cast<double>(stages) - 1) / micro, static_cast<std::int64_t>(peak)};
}

std::string option_text(const Choice& choice) {
  std::string text = " --mesh " + Topology(choice.mesh.axes()).text() +
                     " --set accumulation=" + std::to_string(choice.accumulation);
  return text + " --set " + shell_word(std::string("remat=") + kRecompute[choice.recompute].remat);
}

}  // namespace

std::vector<Plan> stage_plans(const TrainerConfig& config, const kernels::Catalog& catalog,
                              const hal::DeviceInfo& device, const Plan* first) {
  ComposeOptions options = config.compose_options();
  options.enforce_memory = false;
  const auto stages = static_cast<int>(config.mesh->pipeline);
  std::vector<Plan> plans;
  for (int stage = 0; stage < stages; ++stage) {
    options.rank = rank_of_stage(*config.mesh, stage);
    plans.push_back(first && first->mesh.rank() == options.rank
                        ? *first
                        : compose_training(*config.model, *config.learner, options, catalog, device));
  }
  return plans;
}

std::vector<const Plan*> pointers_to(const std::vector<Plan>& plans) {
  std::vector<const Plan*> pointers;
  for (const Plan& plan : plans) pointers.push_back(&plan);
  return pointers;
}

double mfu_of(const TrainerConfig& config, const std::vector<const Plan*>& stages, double seconds,
              const hal::DeviceInfo& device) {
  const double peak = hal::peak_flops(device.profile, config.compose_options().dtype);
  double flops = 0;
  for (const Plan* plan : stages) flops += plan->update_flops();
  return peak > 0 && seconds > 0 ? flops / static_cast<double>(stages.size()) / seconds / peak : 0;
}

MeshSearch search_meshes(const TrainerConfig& config, std::int64_t ranks, const hal::DeviceInfo& device,
                         const kernels::Catalog& catalog, const layers::ClassTable& classes,
                         const hal::Network& network) {
  if (ranks < 2)
    throw Error("--search", "needs at least two ranks, of the selector or of --mesh", std::to_string(ranks));
  const Sizes sizes = sizes_of(config, catalog, device);
  MeshSearch search;
  std::vector<Choice> choices;
  for (const MeshConfig& mesh : meshes_of(ranks, *config.mesh, sizes.experts))
    for (std::int64_t micro = 1; micro <= std::min(config.batch, kMaxMicroBatches); ++micro) {
      if (config.batch % micro != 0) continue;
      for (std::size_t recompute = 0; recompute < std::size(kRecompute); ++recompute) {
        Choice choice{mesh, recompute, micro};
        ++search.tried;
        const auto falls = [&](const std::string& why) { ++search.fell[why]; };
        if (config.batch / micro % (mesh.data * mesh.expert * mesh.fsdp) != 0)
          falls("the rows of a micro-batch are no multiple of the ranks of data, expert and fsdp");
        else if (mesh.pipeline > std::min(sizes.layers, kMaxStages))
          falls(fmt::format("more stages than layers, or than {}", kMaxStages));
        else if (mesh.pipeline > micro)
          falls("more stages than micro-batches");
        else if (sizes.memory > 0 && memory_floor(choice, sizes) > static_cast<double>(sizes.memory))
          falls("parameters, gradients and optimizer do not fit");
        else {
          choice.seconds = estimate(choice, sizes, network);
          choices.push_back(choice);
        }
      }
    }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.seconds < b.seconds; });
  std::vector<Guess> guesses;
  for (const Choice& choice : choices) {
    if (guesses.size() >= kEstimated) {
      ++search.fell["slower by the rough estimate"];
      continue;
    }
    ++search.composed;
    try {
      Guess found = guess(config, choice, sizes, catalog, device, classes, network);
      if (sizes.memory > 0 && found.peak > sizes.memory)
        ++search.fell["activations do not fit, by plans of one layer and of two"];
      else
        guesses.push_back(std::move(found));
    } catch (const hal::Error& error) {
      ++search.fell[error.rule()];
    }
  }
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& a, const Guess& b) { return a.seconds < b.seconds; });
  for (std::size_t i = 0; i < guesses.size(); ++i) {
    if (i >= kComposed) {
      ++search.fell["slower by plans of one layer and of two"];
      continue;
    }
    const Choice& choice = guesses[i].choice;
    try {
      const TrainerConfig tree = with(config, choice, classes);
      const std::vector<Plan> plans = stage_plans(tree, catalog, device);
      FoundMesh found;
      for (const Plan& plan : plans) found.peak_bytes = std::max(found.peak_bytes, plan.peak_bytes);
      if (sizes.memory > 0 && found.peak_bytes > sizes.memory) {
        ++search.fell["does not fit when composed in full"];
        continue;
      }
      found.mesh = Topology(choice.mesh.axes()).text();
      found.remat = kRecompute[choice.recompute].about;
      found.options = option_text(choice);
      found.accumulation = choice.accumulation;
      found.time = simulate_step(pointers_to(plans), network, device);
      found.mfu = mfu_of(tree, pointers_to(plans), found.time.seconds, device);
      search.best.push_back(std::move(found));
    } catch (const hal::Error& error) {
      ++search.fell[error.rule()];
    }
  }
  std::stable_sort(search.best.begin(), search.best.end(),
                   [](const FoundMesh& a, const FoundMesh& b) { return a.time.seconds < b.time.seconds; });
  if (search.best.size() > kShown) search.best.resize(kShown);
  return search;
}

std::string search_text(const MeshSearch& search, const std::string& command) {
  std::string text = fmt::format(
      "search      {} combinations of mesh, remat and micro-batches, {} composed with few layers\n",
      search.tried, search.composed);
  for (const FoundMesh& found : search.best) {
    text += fmt::format("  {:.4g} s{}, {} ({})  {}, {}, {} micro-batch{}\n", found.time.seconds,
                        found.mfu > 0 ? fmt::format(", MFU {:.1f} %", 100 * found.mfu) : "", found.peak_bytes,
                        bytes_text(static_cast<double>(found.peak_bytes)), found.mesh, found.remat,
                        found.accumulation, found.accumulation == 1 ? "" : "es");
    text += "    " + command + found.options + "\n";
  }
  if (search.best.empty()) text += "  none fits\n";
  for (const auto& [why, count] : search.fell) text += fmt::format("  {} fell out: {}\n", count, why);
  return text;
}

}  // namespace meshloom::trainer
