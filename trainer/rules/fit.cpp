#include "trainer/rules/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "hal/error.h"
#include "hal/suggest.h"
#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "trainer/compose/report.h"
#include "trainer/config/tree_modifiers.h"

namespace meshloom::trainer {
namespace {

// A way to take less memory.
struct Way {
  const char* value;         // what the knob's field gets
  const char* about;         // "the optimizer on the host"
  bool needs_host = false;   // takes memory of the host beside the device
  bool last_resort = false;  // slow: tried only where nothing else fits
};

// A field that a run may be edited by without a change of its results but for rounding. Another way is another line of kKnobs:
// the search knows none of them by name.
struct Knob {
  const char* field;                               // left alone where the user set it, or a field below it
  bool (*is_chosen)(const TrainerConfig& config);  // by the recipe, which keeps it
  void (*set)(TrainerConfig& config, const char* value, std::int64_t max_chunk,
              const layers::ClassTable& classes);
  bool persistent;        // whether it is about the optimizer: it may change what is kept from step to step
  std::vector<Way> ways;  // from the fastest to the smallest; before them comes the recipe as it is
};

bool has_chunks(const TrainerConfig& config) {
  bool found = false;
  layers::visit(config, [&](const std::string&, const layers::Config& node) {
    found = found || node.class_name() == "ChunkedLoss";
  });
  return found;
}

void set_chunks(TrainerConfig& config, std::int64_t chunk, const layers::ClassTable& classes) {
  Wrap wrap;
  wrap.selection.of_class = "TokenLoss";
  wrap.slot = "base";
  layers::set(wrap, "with", fmt::format("ChunkedLoss{{chunk_size={}}}", chunk), classes);
  wrap.apply(config, classes);
}

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> kKnobs{
      {"offload_optimizer",
       [](const TrainerConfig& config) { return config.offload_optimizer; },
       [](TrainerConfig& config, const char* value, std::int64_t, const layers::ClassTable& classes) {
         layers::set(config, "offload_optimizer", value, classes);
       },
       true,
       {{"true", "the optimizer on the host", /*needs_host=*/true}}},
      {"optimizer_in_backward",
       [](const TrainerConfig& config) {
         // A norm to clip by is known only after the last gradient, and so is whether a scaled loss overflowed.
         return config.optimizer_in_backward || config.learner->clip_norm > 0 || config.dtype == "f16";
       },
       [](TrainerConfig& config, const char* value, std::int64_t, const layers::ClassTable& classes) {
         layers::set(config, "optimizer_in_backward", value, classes);
       },
       true,
       {{"true", "each parameter updated as soon as its gradient is known"}}},
      {"remat",
       [](const TrainerConfig& config) { return !config.remat.empty(); },
       [](TrainerConfig& config, const char* value, std::int64_t, const layers::ClassTable& classes) {
         layers::set(config, "remat", value, classes);
       },
       false,
       {{"[RematRule{tag=\"**norm\" policy=recompute}, RematRule{tag=feed_forward.hidden policy=recompute}]",
         "norms and hidden values of feed-forward layers computed again"},
        {"[RematRule{policy=offload}]", "activations in the host's memory until the backward pass",
         /*needs_host=*/true},
        {"[RematRule{policy=recompute}]", "all activations computed again"}}},
      // The products of a chunk are the smaller the fewer its tokens are.
      {"model.loss",
       has_chunks,
       [](TrainerConfig& config, const char* value, std::int64_t max_chunk,
          const layers::ClassTable& classes) {
         set_chunks(config, std::min<std::int64_t>(std::stoll(value), max_chunk), classes);
       },
       false,
       {{"1024", "the loss in chunks of 1024 tokens"},
        {"256", "the loss in chunks of 256 tokens", /*needs_host=*/false, /*last_resort=*/true}}}};
  return kKnobs;
}

// The tokens whose scores, in f32, the device can hold in one allocation: a power of two.
std::int64_t max_chunk_of(const TrainerConfig& config, const hal::DeviceInfo& device) {
  const std::int64_t row = 4 * layers::vocabulary(*config.model);
  std::int64_t chunk = std::int64_t{1} << 30;
  while (device.limits.max_allocation_bytes > 0 && chunk > 1 &&
         chunk > device.limits.max_allocation_bytes / row)
    chunk /= 2;
  return chunk;
}

struct Edit {
  std::vector<std::size_t> ways;  // by knob: 0 = as the recipe says, i = its way i - 1
  std::int64_t accumulation = 1;
};

TrainerConfig edited(const TrainerConfig& config, const Edit& edit, std::int64_t max_chunk,
                     const layers::ClassTable& classes) {
  TrainerConfig tree = config;
  tree.fit = false;
  tree.accumulation = edit.accumulation;
  for (std::size_t k = 0; k < edit.ways.size(); ++k)
    if (edit.ways[k] > 0) knobs()[k].set(tree, knobs()[k].ways[edit.ways[k] - 1].value, max_chunk, classes);
  return tree;
}

class Fitting {
 public:
  Fitting(TrainerConfig& config, const hal::DeviceInfo& device, const kernels::Catalog& catalog,
          const layers::ClassTable& classes, const FitOptions& options)
      : config_(config),
        device_(device),
        catalog_(catalog),
        classes_(classes),
        options_(options),
        limit_(memory_limit(device)),
        max_chunk_(max_chunk_of(config, device)) {
    for (const Knob& knob : knobs()) {
      std::vector<std::size_t> open{0};
      for (std::size_t i = 0; i < knob.ways.size(); ++i)
        if (!knob.is_chosen(config) && !fixed(knob.field) && (!knob.ways[i].needs_host || device.host))
          open.push_back(i + 1);
      open_.push_back(std::move(open));
    }
    const std::int64_t most = fixed("accumulation") ? config.accumulation : config.batch;
    for (std::int64_t parts = config.accumulation; parts <= most; ++parts)
      if (config.batch % parts == 0) accumulations_.push_back(parts);
  }

  std::string run() {
    const Edit plain{std::vector<std::size_t>(knobs().size(), 0), config_.accumulation};
    const std::vector<std::vector<std::size_t>> groups = this->groups();
    if (options_.started)
      for (const std::vector<std::size_t>& ways : groups)
        for (const std::int64_t parts : accumulations_)
          if (same_choice(tree_of({ways, parts}), *options_.started)) return take({ways, parts}, {});
    const std::optional<Measured> asked = measure(plain, /*must_compose=*/true);
    if (asked && fits(*asked)) return take(plain, {});
    if (asked) note(*asked);
    for (const std::vector<std::size_t>& ways : groups)
      if (is_smallest(ways))
        for (const std::int64_t parts : {accumulations_.front(), accumulations_.back()})
          if (const std::optional<Measured> found = measure({ways, parts})) note(*found);
    // The smallest plan may be another one, but only by little.
    if (least_ && limit_ > 0 && static_cast<double>(least_->bytes) > 1.05 * static_cast<double>(limit_))
      return none_fits();
    for (const bool last_resort : {false, true})
      for (const std::vector<std::size_t>& ways : groups)
        if (is_last_resort(ways) == last_resort && !(last_resort && best_)) search(ways);
    if (best_) return take(best_->edit, said(*best_, asked));
    if (!least_) return take(plain, {});
    return none_fits();
  }

 private:
  std::string none_fits() {
    return take(least_->edit,
                fmt::format("no choice of micro-batches, remat, chunks of the loss and offload fits into {}; "
                            "the least is {}, with {}",
                            readable_bytes(limit_), readable_bytes(least_->bytes), about(least_->edit)));
  }

  struct Measured {
    Edit edit;
    std::int64_t bytes = 0;
    std::int64_t kept = 0;  // from step to step
    double seconds = 0;
  };

  bool fixed(const std::string& path) const {
    return std::any_of(options_.fixed.begin(), options_.fixed.end(),
                       [&](const std::string& given) { return given.starts_with(path); });
  }

  bool fits(const Measured& measured) const { return limit_ <= 0 || measured.bytes <= limit_; }

  // Every combination of open ways, the fastest of each knob first.
  std::vector<std::vector<std::size_t>> groups() const {
    std::vector<std::vector<std::size_t>> all{{}};
    for (const std::vector<std::size_t>& open : open_) {
      std::vector<std::vector<std::size_t>> longer;
      for (const std::vector<std::size_t>& ways : all)
        for (const std::size_t way : open) {
          longer.push_back(ways);
          longer.back().push_back(way);
        }
      all = std::move(longer);
    }
    return all;
  }

  static bool is_last_resort(const std::vector<std::size_t>& ways) {
    for (std::size_t k = 0; k < ways.size(); ++k)
      if (ways[k] > 0 && knobs()[k].ways[ways[k] - 1].last_resort) return true;
    return false;
  }

  // Whether no other way takes less memory, but for knobs of what is kept from step to step.
  bool is_smallest(const std::vector<std::size_t>& ways) const {
    for (std::size_t k = 0; k < ways.size(); ++k)
      if (!knobs()[k].persistent && ways[k] != open_[k].back() &&
          (ways[k] == 0 || !knobs()[k].ways[ways[k] - 1].needs_host))
        return false;
    return true;
  }

  // Tries these ways with more and more micro-batches, which take longer and longer, until they fit.
  void search(const std::vector<std::size_t>& ways) {
    std::optional<Measured> before;
    for (const std::int64_t parts : accumulations_) {
      const bool is_end = parts == accumulations_.front() || parts == accumulations_.back();
      // What is kept does not depend on the ways of other knobs: where it is too much, only the smallest plan is of interest.
      const auto kept = kept_.find(kept_key({ways, parts}));
      if (limit_ > 0 && kept != kept_.end() && kept->second > limit_ && !(is_smallest(ways) && is_end))
        continue;
      // What is not kept shrinks with the rows of a micro-batch, at most in proportion; a quarter is the margin of this.
      if (before && !is_end && limit_ > 0 &&
          before->kept + 3 * (before->bytes - before->kept) / 4 * before->edit.accumulation / parts > limit_)
        continue;
      if (is_slower({ways, parts})) return;
      const std::optional<Measured> found = measure({ways, parts});
      if (!found) continue;
      note(*found);
      if (fits(*found)) {
        if (!best_ || found->seconds < best_->seconds) best_ = found;
        return;
      }
      if (best_ && found->seconds >= best_->seconds) return;
      before = found;
    }
  }

  // Whether a way of a knob takes no longer than another: copies to the host and back compare with nothing else.
  static bool is_less(std::size_t knob, std::size_t way, std::size_t other) {
    const auto needs_host = [&](std::size_t i) { return i > 0 && knobs()[knob].ways[i - 1].needs_host; };
    return way == 0 || way == other || (way < other && !needs_host(way) && !needs_host(other));
  }

  // Whether an edit that changes less, and so takes no longer, already takes as long as the best.
  bool is_slower(const Edit& edit) const {
    if (!best_) return false;
    return std::any_of(measured_.begin(), measured_.end(), [&](const auto& entry) {
      const auto& [ways, parts] = entry.first;
      if (!entry.second || entry.second->seconds < best_->seconds || parts > edit.accumulation) return false;
      for (std::size_t k = 0; k < ways.size(); ++k)
        if (!is_less(k, ways[k], edit.ways[k])) return false;
      return true;
    });
  }

  void note(const Measured& found) {
    kept_.emplace(kept_key(found.edit), found.kept);
    if (!least_ || found.bytes < least_->bytes) least_ = found;
  }

  // Edits with the same key keep the same from step to step.
  static std::vector<std::size_t> kept_key(const Edit& edit) {
    std::vector<std::size_t> key{edit.accumulation > 1 ? std::size_t{1} : 0};
    for (std::size_t k = 0; k < edit.ways.size(); ++k)
      key.push_back(knobs()[k].persistent ? edit.ways[k] : 0);
    return key;
  }

  TrainerConfig tree_of(const Edit& edit) const { return edited(config_, edit, max_chunk_, classes_); }

  // Nothing where one tensor is larger than what the device allocates at once, or the host's part than the host's memory.
  std::optional<Measured> measure(const Edit& edit, bool must_compose = false) {
    const auto [known, is_new] = measured_.try_emplace({edit.ways, edit.accumulation});
    if (is_new) known->second = composed(edit, must_compose);
    return known->second;
  }

  std::optional<Measured> composed(const Edit& edit, bool must_compose) const {
    try {
      const TrainerConfig tree = tree_of(edit);
      ComposeOptions compose = tree.compose_options();
      compose.enforce_memory = false;
      compose.verify_passes = false;
      const Plan plan = options_.compose
                            ? options_.compose(tree, compose, device_)
                            : compose_training(*tree.model, *tree.learner, compose, catalog_, device_);
      std::int64_t kept = 0;
      for (const Block& block : plan.blocks)
        if (block.persistent && block.memory == hal::MemoryKind::device) kept += block.bytes;
      const std::int64_t host = device_.host ? memory_limit(*device_.host) : 0;
      if (host > 0 && plan.host.peak_bytes > host) return std::nullopt;
      return Measured{edit, plan.peak_bytes, kept, plan.update_predicted_seconds()};
    } catch (const hal::OutOfMemory&) {
      return std::nullopt;
    } catch (const Error&) {
      if (must_compose) throw;  // else the edit does not suit the model
      return std::nullopt;
    }
  }

  // Whether the two agree in all that an edit may change.
  static bool same_choice(const TrainerConfig& a, const TrainerConfig& b) {
    const auto choice = [](const TrainerConfig& tree) {
      std::string text = std::to_string(tree.accumulation) + (tree.offload_optimizer ? " offload " : " ") +
                         (tree.optimizer_in_backward ? "in backward " : "") + layers::get(tree, "remat");
      layers::visit(tree, [&](const std::string& path, const layers::Config& node) {
        if (node.class_name() == "ChunkedLoss") text += " " + path + layers::get(node, "chunk_size");
      });
      return text;
    };
    return choice(a) == choice(b);
  }

  std::string about(const Edit& edit) const {
    std::vector<std::string> parts;
    if (edit.accumulation > 1)
      parts.push_back(fmt::format("{} micro-batches of {} row{}", edit.accumulation,
                                  config_.batch / edit.accumulation,
                                  config_.batch == edit.accumulation ? "" : "s"));
    for (std::size_t k = 0; k < edit.ways.size(); ++k)
      if (edit.ways[k] > 0) parts.emplace_back(knobs()[k].ways[edit.ways[k] - 1].about);
    return parts.empty() ? "the recipe as it is" : hal::join(parts);
  }

  std::string said(const Measured& best, const std::optional<Measured>& asked) const {
    std::string text = "to fit into " + readable_bytes(limit_);
    if (!asked) text += " and allocations of at most " + readable_bytes(device_.limits.max_allocation_bytes);
    text += fmt::format(": {}; the plan takes {}", about(best.edit), readable_bytes(best.bytes));
    if (asked)
      text +=
          fmt::format(" instead of {}, and {:.3g} times a step's predicted time",
                      readable_bytes(asked->bytes), asked->seconds > 0 ? best.seconds / asked->seconds : 1.0);
    return text;
  }

  std::string take(const Edit& edit, std::string line) {
    config_ = tree_of(edit);
    return line;
  }

  TrainerConfig& config_;
  const hal::DeviceInfo& device_;
  const kernels::Catalog& catalog_;
  const layers::ClassTable& classes_;
  const FitOptions& options_;
  std::int64_t limit_, max_chunk_;
  std::vector<std::vector<std::size_t>> open_;  // by knob: the ways that may be taken
  std::vector<std::int64_t> accumulations_;     // ascending
  std::map<std::vector<std::size_t>, std::int64_t> kept_;
  std::optional<Measured> best_, least_;  // the fastest that fits, and the smallest
  std::map<std::pair<std::vector<std::size_t>, std::int64_t>, std::optional<Measured>> measured_;
};

}  // namespace

std::string fit(TrainerConfig& config, const hal::DeviceInfo& device, const kernels::Catalog& catalog,
                const layers::ClassTable& classes, const FitOptions& options) {
  return Fitting(config, device, catalog, classes, options).run();
}

std::string cut_scores(TrainerConfig& config, const hal::DeviceInfo& device, const kernels::Catalog& catalog,
                       const layers::ClassTable& classes) {
  const std::int64_t largest = device.limits.max_allocation_bytes, chunk = max_chunk_of(config, device);
  if (largest <= 0 || has_chunks(config) || config.batch / config.accumulation * config.sequence <= chunk)
    return {};
  ComposeOptions compose = config.compose_options();
  compose.enforce_memory = false;
  try {
    compose_training(*config.model, *config.learner, compose, catalog, device);
    return {};  // 16-bit scores may fit
  } catch (const hal::OutOfMemory&) {
  }
  set_chunks(config, chunk, classes);
  return fmt::format(
      "the scores of the loss would be a tensor larger than the {} that the device allocates at once: the "
      "loss "
      "goes by chunks of {} tokens",
      readable_bytes(largest), chunk);
}

}  // namespace meshloom::trainer
