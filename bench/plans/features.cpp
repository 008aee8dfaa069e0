#include "bench/plans/features.h"

#include <algorithm>
#include <cmath>

#include "hal/device.h"
#include "hal/error.h"
#include "layers/models/models.h"
#include "layers/moe/moe.h"
#include "trainer/compose/compose.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::bench {
namespace {

using trainer::CallCost;

constexpr double kBf16Bytes = 2;
constexpr std::int64_t kMaxAllocationBytes = std::int64_t{1} << 50;

layers::Stack::Config& stack_of(layers::CausalLM::Config& model) {
  return dynamic_cast<layers::Stack::Config&>(*model.decoder->stack);
}

std::int64_t parameters(const PublishedRun& run, bool tied) {
  const std::int64_t attention = run.d_model * run.head_dim * 2 * (run.heads + run.kv_heads);
  const std::int64_t experts = std::max<std::int64_t>(1, run.experts);
  return run.layers * (attention + experts * run.d_model * run.ffn * (run.gated ? 3 : 2)) +
         run.vocab * run.d_model * (tied ? 1 : 2);
}

// Tables do not say whether the head is the embedding: the number of parameters does.
bool is_tied(const PublishedRun& run) {
  if (run.parameters <= 0) return false;
  const auto error = [&](bool tied) {
    return std::abs(static_cast<double>(parameters(run, tied)) - run.parameters);
  };
  return error(true) < error(false);
}

layers::CausalLM::Config model_of(const PublishedRun& run) {
  layers::CausalLM::Config model = layers::llama_config({.vocab = run.vocab,
                                                         .dim = run.d_model,
                                                         .layers = run.layers,
                                                         .heads = run.heads,
                                                         .kv_heads = run.kv_heads,
                                                         .ffn = run.ffn,
                                                         .tied = is_tied(run),
                                                         .head_dim = run.head_dim});
  auto& layer = dynamic_cast<layers::TransformerLayer::Config&>(*stack_of(model).layer);
  auto& dense = dynamic_cast<layers::FeedForward::Config&>(*layer.feed_forward);
  if (!run.gated) {
    dense.activation = layers::GeluTanh{};
    dense.gate_proj = {};
  }
  if (run.experts > 0) {
    layers::MoE::Config moe;
    static_cast<layers::FeedForward::Config&>(moe) = dense;
    // Without the axis expert: a rank has its share of the experts and, from all ranks, as many rows.
    moe.num_experts = std::max(run.top_k, run.experts / run.expert);
    layers::TopK::Config gating;
    gating.k = run.top_k;
    moe.gating = gating;
    layer.feed_forward = moe;
  }
  return model;
}

std::vector<layers::Child<trainer::RematRuleConfig>> remat_of(const PublishedRun& run) {
  std::vector<layers::Child<trainer::RematRuleConfig>> rules;
  const auto recompute = [&](const char* tag) {
    trainer::RematRuleConfig rule;
    rule.tag = tag;
    rule.policy = "recompute";
    rules.emplace_back(rule);
  };
  if (run.remat == "full") recompute("**");
  if (run.remat.starts_with("selective")) {  // every second product is computed again, and what costs little
    recompute("feed_forward.{gate_proj,up_proj,hidden}");
    recompute("norm");
  }
  return rules;
}

}  // namespace

trainer::TrainerConfig recipe_of(const PublishedRun& run) {
  trainer::TrainerConfig config;
  config.model = model_of(run);
  config.batch = run.micro_batch * run.copies() * run.accumulation;
  config.sequence = run.sequence / run.context;
  config.accumulation = run.accumulation;
  config.dtype = "bf16";
  config.remat = remat_of(run);
  config.mesh->data = run.data;
  config.mesh->fsdp = run.fsdp;
  config.mesh->model = run.tensor;
  trainer::set_adamw(config, {});
  return config;
}

std::int64_t FeatureComposer::composed(std::int64_t ranks) const {
  for (std::int64_t count = std::min(ranks, composed_ranks_); count > 1; --count)
    if (ranks % count == 0) return count;
  return std::min(ranks, composed_ranks_);
}

struct FeatureComposer::Part {
  struct Calls {
    double micro = 0, update = 0;  // of a micro-batch, and of a step
  };
  struct Moved {
    double micro_bytes = 0, update_bytes = 0, micro_count = 0, update_count = 0;
  };
  std::map<CallCost, Calls> calls;
  std::map<std::pair<std::string, std::string>, Moved> moves;  // by axes and op
  double peak_bytes = 0, optimizer_bytes = 0, parameter_bytes = 0;
};

const FeatureComposer::Part& FeatureComposer::part(const PublishedRun& run, const Chip& chip,
                                                   std::int64_t count) {
  PublishedRun small = run;
  small.data = composed(run.data);
  small.fsdp = composed(run.fsdp);
  const bool accumulates = run.accumulation > 1;
  small.accumulation = accumulates ? 2 : 1;
  trainer::TrainerConfig config = recipe_of(small);
  stack_of(dynamic_cast<layers::CausalLM::Config&>(*config.model)).num_layers = count;
  trainer::ComposeOptions options = config.compose_options();
  options.evaluation = false;
  options.enforce_memory = false;
  const std::string key = chip.profile + " " + trainer::print_recipe(config);
  std::shared_ptr<const Part>& known = parts_[key];
  if (known) return *known;
  // The chip is not driven by Vulkan, whose drivers let no tensor be larger than 4 GiB.
  hal::DeviceInfo device = devices_.open("null", chip.profile)->info();
  device.limits.max_allocation_bytes = kMaxAllocationBytes;
  const trainer::Plan plan = [&] {
    try {
      return trainer::compose_training(*config.model, *config.learner, options, catalog_, device);
    } catch (...) {
      parts_.erase(key);
      throw;
    }
  }();
  auto part = std::make_shared<Part>();
  part->peak_bytes = static_cast<double>(plan.peak_bytes);
  for (const auto& [name, bytes] : plan.memory) {
    if (name == "optimizer") part->optimizer_bytes = static_cast<double>(bytes);
    if (name == "parameters" || name == "gradients") part->parameter_bytes += static_cast<double>(bytes);
  }
  for (const trainer::UpdateStep& step : plan.steps.update) {
    const trainer::PlannedProgram& planned = plan.steps.at(step.step);
    const bool apply = step.times == 1 && accumulates;
    for (const kernels::Call& call : planned.program.calls) {
      const kernels::Contract& contract = catalog_.contract(call.op);
      if (contract.view || contract.moves) continue;
      const kernels::CallTypes types(planned.program, call);
      const kernels::CallView view = types.view(call);
      CallCost cost = trainer::call_cost(view, contract.flops(view), contract.bytes(view));
      cost.update = call.phase == kernels::Phase::update;
      cost.fp8 = run.fp8() && cost.kind == CallCost::Kind::matmul;
      Part::Calls& count = part->calls[cost];
      (apply || cost.update ? count.update : count.micro) += 1;
    }
    for (const trainer::Exchange& exchange : planned.exchanges) {
      const auto bytes = static_cast<double>(exchange.moved.out);
      Part::Moved& moved = part->moves[{to_string(exchange.axes), exchange.op}];
      const bool update = apply || planned.program.calls[static_cast<std::size_t>(exchange.call)].phase ==
                                       kernels::Phase::update;
      (update ? moved.update_bytes : moved.micro_bytes) += bytes;
      (update ? moved.update_count : moved.micro_count) += 1;
    }
  }
  known = std::move(part);
  return *known;
}

StepFeatures FeatureComposer::compose(const PublishedRun& run) {
  const Chip* chip = find_chip(run.chip);
  if (!chip) throw Error("chip_type", "must begin with one of " + known_chips(), "'" + run.chip + "'");
  const Part &one = part(run, *chip, 1), &two = part(run, *chip, 2);
  StepFeatures features;
  features.chip = *chip;
  features.profile = hal::find_profile(chip->profile);
  if (chip->memory_rate > 0) features.profile.memory_bytes_per_second = chip->memory_rate;
  // The stage of a pipeline with the most layers, with the embedding and the head.
  const double layers = std::ceil(static_cast<double>(run.layers) / static_cast<double>(run.pipeline));
  const auto extended = [&](double with_one, double with_two) {
    return std::max(0.0, with_one + (layers - 1) * (with_two - with_one));
  };
  const double times = static_cast<double>(run.accumulation);
  const double data = static_cast<double>(composed(run.data)), fsdp = static_cast<double>(composed(run.fsdp));
  // What an element's owner computes falls with the number of ranks.
  const double owned = data * fsdp / static_cast<double>(run.data * run.fsdp);
  std::map<CallCost, std::pair<Part::Calls, Part::Calls>> calls;
  for (const auto& [cost, count] : one.calls) calls[cost].first = count;
  for (const auto& [cost, count] : two.calls) calls[cost].second = count;
  for (const auto& [cost, counts] : calls) {
    CallCost scaled = cost;
    if (cost.kind == CallCost::Kind::attention || cost.kind == CallCost::Kind::attention_grad) {
      scaled.flops *= static_cast<double>(run.context);  // its keys are those of all ranks of the axis
      scaled.n *= static_cast<double>(run.context);
    }
    if (cost.update) {
      scaled.flops *= owned;
      scaled.bytes *= owned;
    }
    const double count = times * extended(counts.first.micro, counts.second.micro) +
                         extended(counts.first.update, counts.second.update);
    if (count > 0) features.calls.emplace_back(scaled, count);
  }
  const std::int64_t box = chip->box;
  std::map<std::pair<std::string, std::string>, std::pair<Part::Moved, Part::Moved>> moves;
  for (const auto& [key, moved] : one.moves) moves[key].first = moved;
  for (const auto& [key, moved] : two.moves) moves[key].second = moved;
  for (const auto& [key, pair] : moves) {
    const auto& [axes, op] = key;
    const auto& [a, b] = pair;
    GroupMoves group;
    const bool tensor = axes.find("model") != std::string::npos;
    double few = 1, ranks = 1;
    if (axes.find("data") != std::string::npos) few *= data, ranks *= static_cast<double>(run.data);
    if (axes.find("fsdp") != std::string::npos) few *= fsdp, ranks *= static_cast<double>(run.fsdp);
    if (tensor) few *= static_cast<double>(run.tensor), ranks *= static_cast<double>(run.tensor);
    const bool sharded = axes.find("data") != std::string::npos || axes.find("fsdp") != std::string::npos;
    group.what = (tensor && !sharded) ? "tensor" : op == "all_gather" ? "gather" : "reduce";
    group.ranks = static_cast<std::int64_t>(ranks);
    // Axes are dealt to boxes from the innermost.
    double span = static_cast<double>(run.tensor * run.context);
    if (sharded) span *= static_cast<double>(run.fsdp);
    if (axes.find("data") != std::string::npos) span *= static_cast<double>(run.data);
    group.inner = (tensor && !sharded) ? run.tensor <= box : span <= static_cast<double>(box);
    double larger = ranks > 1 && few > 1 ? (1 - 1 / ranks) / (1 - 1 / few) : 1;
    if (axes == "data")
      larger *= fsdp / static_cast<double>(run.fsdp);  // what moves is a rank's range of fsdp
    group.bytes =
        larger * (times * extended(a.micro_bytes, b.micro_bytes) + extended(a.update_bytes, b.update_bytes));
    group.count = times * extended(a.micro_count, b.micro_count) + extended(a.update_count, b.update_count);
    features.moves.push_back(group);
  }
  const double tokens = static_cast<double>(run.micro_batch * (run.sequence / run.context));
  if (run.pipeline > 1) {
    features.bubble =
        static_cast<double>(run.pipeline - 1) / (times * static_cast<double>(run.virtual_stages));
    features.moves.push_back({"pipeline", run.pipeline, run.tensor * run.context * run.pipeline <= box,
                              times * 2 * static_cast<double>(run.virtual_stages) * kBf16Bytes * tokens *
                                  static_cast<double>(run.d_model) / static_cast<double>(run.tensor),
                              times * 2 * static_cast<double>(run.virtual_stages)});
    features.simplified.push_back(
        "one stage was composed, without a pipeline; the bubble is (p - 1) / (v m)");
  }
  if (run.expert > 1 && run.experts > 0) {
    const double others = 1 - 1 / static_cast<double>(run.expert);
    features.moves.push_back(
        {"experts", run.expert, run.expert * run.tensor <= box,
         times * layers * 4 * others * kBf16Bytes * tokens / static_cast<double>(run.tensor) *
             static_cast<double>(run.d_model * run.top_k),
         times * layers * 4});
    features.simplified.push_back(
        "experts were divided by ep, without the axis; what they exchange was added");
  }
  if (run.context > 1) {
    const double kv = 2 * kBf16Bytes * tokens * static_cast<double>(run.kv_heads * run.head_dim) /
                      static_cast<double>(run.tensor);
    features.moves.push_back({"context", run.context, run.context * run.tensor <= box,
                              times * layers * 3 * static_cast<double>(run.context - 1) * kv,
                              times * layers * 3 * static_cast<double>(run.context - 1)});
    features.simplified.push_back(
        "the sequence was divided by cp, without the axis; what ring attention moves was added");
  }
  features.peak_bytes =
      extended(one.peak_bytes, two.peak_bytes) -
      (1 - owned) * extended(one.optimizer_bytes, two.optimizer_bytes) -
      (1 - fsdp / static_cast<double>(run.fsdp)) * extended(one.parameter_bytes, two.parameter_bytes);
  PublishedRun active = run;
  active.experts = std::max<std::int64_t>(run.experts > 0 ? run.top_k : 0, 0);
  const double per_token =
      6 * static_cast<double>(parameters(active, true)) +
      6 * static_cast<double>(run.layers * run.heads * run.head_dim) * static_cast<double>(run.sequence);
  features.model_flops = per_token * static_cast<double>(run.micro_batch * run.accumulation * run.copies()) *
                         static_cast<double>(run.sequence) / static_cast<double>(run.chips);
  return features;
}

}  // namespace meshloom::bench
