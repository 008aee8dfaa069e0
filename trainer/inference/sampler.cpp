#include "trainer/inference/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "hal/error.h"
#include "kernels/core/rng.h"

namespace meshloom::trainer {
namespace {

struct TokenLogit {
  std::int32_t id;
  double logit;
};

// No function, so that the loops over a vocabulary inline it.
constexpr auto more_likely = [](const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

// Tokens by falling logit, in parts of about equal weight each. Only those parts are sorted in which something is looked for, so that
// a large vocabulary is gone through few times.
class LogitOrder {
 public:
  // `largest` is the largest logit of all, so that the first weight is 1. The tokens must outlive this.
  LogitOrder(std::span<const TokenLogit> tokens, double largest, double temperature)
      : tokens_(tokens), largest_(largest), temperature_(temperature), part_of_(tokens.size()) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const double steps = (largest - tokens[i].logit) / temperature * kSteps;
      part_of_[i] = static_cast<std::uint16_t>(std::min(steps, double{kParts - 1}));
      Part& part = parts_[part_of_[i]];
      part.sum += weight(tokens[i]);
      ++part.count;
    }
    for (const Part& part : parts_) end_.before += part.sum;
  }

  // A place in the order: so many whole parts, so many tokens of the next, and the sum of all their weights.
  struct Place {
    std::size_t part = 0, index = 0;
    double before = 0;
  };
  Place end() const { return end_; }
  // Behind the fewest tokens, at least one, whose weights reach `enough`, or behind the last weight of at least `least`.
  Place cut(double enough, double least) {
    Place place;
    for (; place.part < kParts && place.before < enough; ++place.part) {
      const Part& part = parts_[place.part];
      const bool large = least == 0 || least_weight(place.part) >= least;
      if (large && place.before + part.sum < enough) {
        place.before += part.sum;
        continue;
      }
      for (const TokenLogit& token : sorted(place.part)) {
        const double next = weight(token);
        if (place.before > 0 && (place.before >= enough || next < least)) return place;
        place.before += next;
        ++place.index;
      }
      place.index = 0;
    }
    return place;
  }
  // The first token in front of a place up to which the weights exceed `draw`.
  std::int32_t token_at(double draw, const Place& end) {
    double before = 0;
    for (std::size_t part = 0; part < kParts && part <= end.part; ++part) {
      if (part < end.part && before + parts_[part].sum <= draw) {
        before += parts_[part].sum;
        continue;
      }
      const std::span<const TokenLogit> tokens = sorted(part);
      for (const TokenLogit& token : part < end.part ? tokens : tokens.first(end.index))
        if ((before += weight(token)) > draw) return token.id;
    }
    return sorted(0).front().id;  // by rounding
  }

 private:
  // The weights of a part are within a factor of exp(1 / kSteps); the last part has all that are smaller.
  static constexpr std::size_t kParts = 128;
  static constexpr double kSteps = 4;
  struct Part {
    double sum = 0;
    std::size_t count = 0;
  };

  double weight(const TokenLogit& token) const { return std::exp((token.logit - largest_) / temperature_); }
  // No weight of the part is smaller.
  static double least_weight(std::size_t part) {
    constexpr double kRounding = 1 - 1e-9;
    return part + 1 < kParts ? std::exp(-static_cast<double>(part + 1) / kSteps) * kRounding : 0;
  }
  std::span<const TokenLogit> sorted(std::size_t part) {
    if (parts_[part].count == 0) return {};
    if (sorted_part_ != part) {
      sorted_part_ = part;
      sorted_.clear();
      for (std::size_t i = 0; i < tokens_.size(); ++i)
        if (part_of_[i] == part) sorted_.push_back(tokens_[i]);
      std::sort(sorted_.begin(), sorted_.end(), more_likely);
    }
    return sorted_;
  }

  std::span<const TokenLogit> tokens_;
  double largest_, temperature_;
  std::vector<std::uint16_t> part_of_;
  std::array<Part, kParts> parts_{};
  Place end_{kParts, 0, 0};
  std::size_t sorted_part_ = kParts;
  std::vector<TokenLogit> sorted_;
};

Error none_is_finite() { return {"sampling", "at least one logit must be finite", "none"}; }

// The finite logits of the tokens that are allowed, by rising id.
std::vector<TokenLogit> finite_logits(std::span<const float> logits, std::span<const std::uint64_t> allowed) {
  std::vector<TokenLogit> tokens;
  if (!allowed.empty()) {
    for (std::size_t word = 0; word < allowed.size(); ++word)
      for (std::uint64_t bits = allowed[word]; bits != 0; bits &= bits - 1) {
        const std::size_t id = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        if (id < logits.size() && std::isfinite(logits[id]))
          tokens.push_back({static_cast<std::int32_t>(id), logits[id]});
      }
    if (tokens.empty())
      throw Error("sampling", "at least one token that is allowed must have a finite logit", "none");
    return tokens;
  }
  tokens.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) tokens.push_back({static_cast<std::int32_t>(i), logits[i]});
  if (tokens.empty()) throw none_is_finite();
  return tokens;
}

bool penalizes(const SamplerOptions& options) {
  return options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
}

void penalize(std::vector<TokenLogit>& tokens, const SamplerOptions& options, const TokensSoFar& so_far) {
  const auto change = [&](std::int32_t id, const auto& edit) {
    const auto found =
        std::lower_bound(tokens.begin(), tokens.end(), id,
                         [](const TokenLogit& token, std::int32_t wanted) { return token.id < wanted; });
    if (found != tokens.end() && found->id == id) edit(found->logit);
  };
  for (const auto& [id, bias] : options.logit_bias) change(id, [&](double& logit) { logit += bias; });
  if (!penalizes(options)) return;
  const bool repetition = options.repetition_penalty != 1;
  std::unordered_map<std::int32_t, std::int64_t> times;  // in what was generated
  for (const std::int32_t id : so_far.generated) ++times[id];
  if (repetition)
    for (const std::int32_t id : so_far.prompt) times.try_emplace(id, 0);
  for (const auto& [id, count] : times)
    change(id, [&](double& logit) {
      if (repetition)
        logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
      if (count > 0)
        logit -= options.presence_penalty + options.frequency_penalty * static_cast<double>(count);
    });
}

std::int32_t largest_logit(std::span<const float> logits) {
  std::int32_t best = -1;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i]) && (best < 0 || logits[i] > logits[static_cast<std::size_t>(best)]))
      best = static_cast<std::int32_t>(i);
  if (best < 0) throw none_is_finite();
  return best;
}

void require_in_range(const char* where, double value, double low, double high, const char* rule) {
  if (!(value >= low && value <= high)) throw Error(where, rule, std::to_string(value));
}

}  // namespace

void check(const SamplerOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    throw Error("temperature", "must be at least 0", std::to_string(options.temperature));
  if (options.top_k < 0) throw Error("top-k", "must be at least 0", std::to_string(options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw Error("top-p", "must be in (0, 1]", std::to_string(options.top_p));
  require_in_range("min-p", options.min_p, 0, 1, "must be in [0, 1]");
  if (!(options.repetition_penalty > 0) || !std::isfinite(options.repetition_penalty))
    throw Error("repetition-penalty", "must be above 0", std::to_string(options.repetition_penalty));
  require_in_range("presence-penalty", options.presence_penalty, -2, 2, "must be in [-2, 2]");
  require_in_range("frequency-penalty", options.frequency_penalty, -2, 2, "must be in [-2, 2]");
  for (const auto& [id, bias] : options.logit_bias)
    if (id < 0 || !std::isfinite(bias))
      throw Error("logit-bias", "must be finite numbers of token ids",
                  std::to_string(bias) + " of id " + std::to_string(id));
}

std::int32_t sample_token(std::span<const float> logits, const SamplerOptions& options, std::int64_t position,
                          const TokensSoFar& so_far, std::span<const std::uint64_t> allowed) {
  if (options.temperature == 0 && allowed.empty() && options.logit_bias.empty() && !penalizes(options))
    return largest_logit(logits);
  std::vector<TokenLogit> tokens = finite_logits(logits, allowed);
  penalize(tokens, options, so_far);
  const TokenLogit best = *std::min_element(tokens.begin(), tokens.end(), more_likely);
  if (options.temperature == 0) return best.id;
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < tokens.size()) {
    std::nth_element(tokens.begin(), tokens.begin() + options.top_k, tokens.end(), more_likely);
    tokens.resize(static_cast<std::size_t>(options.top_k));
  }
  LogitOrder order(tokens, best.logit, options.temperature);
  LogitOrder::Place end = order.end();
  if (options.top_p < 1 || options.min_p > 0)
    end = order.cut(options.top_p < 1 ? options.top_p * end.before : std::numeric_limits<double>::infinity(),
                    options.min_p);
  const double draw =
      static_cast<double>(kernels::mix(options.seed, static_cast<std::uint64_t>(position)) >> 11) * 0x1p-53 *
      end.before;
  return order.token_at(draw, end);
}

}  // namespace meshloom::trainer
