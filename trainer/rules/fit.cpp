#include "trainer/rules/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "hal/error.h"
#include "hal/suggest.h"
#include "layers/config/tree.h"
#include "trainer/compose/report.h"
#include "trainer/config/tree_modifiers.h"

namespace meshloom::trainer {
namespace {

// A set of values that are computed again.
struct Remat {
  std::vector<const char*> tags;
  const char* about;  // "" = none
};
// From the cheapest to compute again to all of them.
const std::vector<Remat>& remats() {
  static const std::vector<Remat> kRemats{
      {{}, ""},
      {{"**norm", "feed_forward.hidden"}, "norms and hidden values of feed-forward layers computed again"},
      {{"**"}, "all activations computed again"}};
  return kRemats;
}

// Tokens of a chunk of the loss; 0 = no chunks. The last is only tried where nothing else fits, because its products are small.
constexpr std::array<std::int64_t, 3> kChunks{0, 1024, 256};

struct Edit {
  std::size_t remat = 0;
  std::int64_t chunk = 0;
  bool offload = false;  // of the optimizer
  std::int64_t accumulation = 1;
};

bool has_chunks(const TrainerConfig& config) {
  bool found = false;
  layers::visit(config, [&](const std::string&, const layers::Config& node) {
    found = found || node.class_name() == "ChunkedLoss";
  });
  return found;
}

TrainerConfig edited(const TrainerConfig& config, const Edit& edit, const layers::ClassTable& classes) {
  TrainerConfig tree = config;
  tree.fit = false;
  tree.accumulation = edit.accumulation;
  tree.offload_optimizer = edit.offload;
  if (edit.remat > 0) {
    tree.remat.clear();
    for (const char* tag : remats()[edit.remat].tags) {
      RematRuleConfig rule;
      rule.tag = tag;
      rule.save = false;
      tree.remat.emplace_back(rule);
    }
  }
  if (edit.chunk > 0) {
    Wrap wrap;
    wrap.selection.of_class = "TokenLoss";
    wrap.slot = "base";
    layers::set(wrap, "with", fmt::format("ChunkedLoss{{chunk_size={}}}", edit.chunk), classes);
    wrap.apply(tree, classes);
  }
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
        limit_(memory_limit(device)) {}

  std::string run() {
    const Edit plain{0, 0, config_.offload_optimizer, config_.accumulation};
    if (options_.started)
      for (const Edit& edit : edits())
        if (same_choice(edited(config_, edit, classes_), *options_.started)) return take(edit, {});
    const std::optional<Measured> asked = measure(plain, /*must_compose=*/true);
    if (asked && fits(*asked)) return take(plain, {});
    // Where what every edit keeps does not fit, only the smallest plan is worth composing.
    const bool hopeless = asked && limit_ > 0 && asked->kept > limit_;
    std::optional<Measured> best, least;
    std::vector<Edit> tried = edits();
    std::stable_partition(tried.begin(), tried.end(),
                          [](const Edit& e) { return e.chunk != kChunks.back(); });
    for (const Edit& edit : tried) {
      if (best && edit.chunk == kChunks.back()) break;
      if (hopeless && !edit.offload &&
          (edit.remat + 1 < remats().size() || edit.accumulation > config_.accumulation))
        continue;
      // More micro-batches of the same kind only take longer.
      if (best && edit.remat == best->edit.remat && edit.chunk == best->edit.chunk &&
          edit.offload == best->edit.offload)
        continue;
      const std::optional<Measured> found = measure(edit);
      if (!found) continue;
      if (!least || found->bytes < least->bytes) least = found;
      if (fits(*found) && (!best || found->seconds < best->seconds)) best = found;
    }
    if (best) return take(best->edit, said(*best, asked));
    if (!least) return take(plain, {});
    return take(
        least->edit,
        fmt::format(
            "no choice of micro-batches, remat, chunks of the loss and offload fits into {}; the least is "
            "{}, with {}",
            readable_bytes(limit_), readable_bytes(least->bytes), about(least->edit)));
  }

 private:
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

  // Every edit; those of one remat and loss are next to each other, larger micro-batches first.
  std::vector<Edit> edits() const {
    std::vector<Edit> all;
    for (std::size_t remat = 0; remat < (config_.remat.empty() && !fixed("remat") ? remats().size() : 1);
         ++remat)
      for (const std::int64_t chunk : kChunks)
        for (const bool offload : {false, true}) {
          if ((chunk > 0 && (has_chunks(config_) || fixed("model.loss"))) || (offload && !device_.host))
            continue;
          if (offload != config_.offload_optimizer && fixed("offload_optimizer")) continue;
          if (!offload && config_.offload_optimizer) continue;
          for (std::int64_t parts = config_.accumulation;
               parts <= (fixed("accumulation") ? config_.accumulation : config_.batch); ++parts)
            if (config_.batch % parts == 0) all.push_back({remat, chunk, offload, parts});
        }
    return all;
  }

  // Nothing where one tensor is larger than what the device allocates at once.
  std::optional<Measured> measure(const Edit& edit, bool must_compose = false) const {
    try {
      const TrainerConfig tree = edited(config_, edit, classes_);
      ComposeOptions compose = tree.compose_options();
      compose.enforce_memory = false;
      if (options_.programs) options_.programs(compose);
      const Plan plan = compose_training(*tree.model, *tree.learner, compose, catalog_, device_);
      std::int64_t kept = 0;
      for (const Block& block : plan.blocks) kept += block.persistent ? block.bytes : 0;
      const std::int64_t host = device_.host ? memory_limit(*device_.host) : 0;
      if (host > 0 && plan.host.peak_bytes > host) return std::nullopt;
      return Measured{edit, plan.peak_bytes, kept, plan.update_roofline_seconds()};
    } catch (const hal::OutOfMemory&) {
      return std::nullopt;
    } catch (const Error&) {
      if (must_compose) throw;  // else the edit does not suit the model
      return std::nullopt;
    }
  }

  // Whether the two agree in all that an edit may change.
  bool same_choice(const TrainerConfig& a, const TrainerConfig& b) const {
    const auto choice = [](const TrainerConfig& tree) {
      std::string text = std::to_string(tree.accumulation) + (tree.offload_optimizer ? " offload " : " ") +
                         layers::get(tree, "remat");
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
    if (edit.remat > 0) parts.push_back(remats()[edit.remat].about);
    if (edit.chunk > 0) parts.push_back(fmt::format("the loss in chunks of {} tokens", edit.chunk));
    if (edit.offload) parts.push_back("the optimizer on the host");
    return parts.empty() ? "the recipe as it is" : hal::join(parts);
  }

  std::string said(const Measured& best, const std::optional<Measured>& asked) const {
    return fmt::format("to fit into {}: {}; the plan takes {}{}", readable_bytes(limit_), about(best.edit),
                       readable_bytes(best.bytes),
                       asked ? fmt::format(" instead of {}, and {:.3g} times the floor of a step's time",
                                           readable_bytes(asked->bytes),
                                           asked->seconds > 0 ? best.seconds / asked->seconds : 1.0)
                             : "");
  }

  std::string take(const Edit& edit, std::string line) {
    config_ = edited(config_, edit, classes_);
    return line;
  }

  TrainerConfig& config_;
  const hal::DeviceInfo& device_;
  const kernels::Catalog& catalog_;
  const layers::ClassTable& classes_;
  const FitOptions& options_;
  std::int64_t limit_;
};

}  // namespace

std::string fit(TrainerConfig& config, const hal::DeviceInfo& device, const kernels::Catalog& catalog,
                const layers::ClassTable& classes, const FitOptions& options) {
  return Fitting(config, device, catalog, classes, options).run();
}

}  // namespace meshloom::trainer
