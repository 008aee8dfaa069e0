#include "bench/plans/validate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "bench/measure/statistics.h"
#include "hal/error.h"

namespace meshloom::bench {
namespace {

using Indices = std::vector<std::size_t>;

constexpr std::size_t kFolds = 5;
constexpr std::size_t kPairs = 60;  // of a source; all of them where there are fewer
constexpr int kRefitSteps = 6;      // two more rows change little
constexpr std::uint64_t kSeed = 24;

double error_of(double predicted, double measured) { return std::abs(predicted / measured - 1); }

// The same on every standard library.
template <typename T>
void shuffle(std::vector<T>& items) {
  std::mt19937_64 random(kSeed);
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random() % i]);
}

Indices without(const Indices& from, const Indices& rows) {
  Indices rest;
  for (const std::size_t row : from)
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rest.push_back(row);
  return rest;
}

std::vector<std::pair<std::size_t, std::size_t>> pairs_of(const Indices& rows) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) pairs.emplace_back(rows[i], rows[j]);
  shuffle(pairs);
  pairs.resize(std::min(pairs.size(), kPairs));
  return pairs;
}

// One part of the peak per family of chips.
class MfuConstants {
 public:
  MfuConstants(const std::vector<PlannedRun>& runs, const Indices& rows) : runs_(runs) {
    std::map<std::string, std::vector<double>> factors;
    for (const std::size_t row : rows)
      factors[runs[row].features.chip.family].push_back(runs[row].run.seconds / at_peak(row));
    for (const auto& [family, values] : factors) factors_[family] = median(values);
  }
  bool knows(std::size_t row) const { return factors_.count(runs_[row].features.chip.family) != 0; }
  double seconds(std::size_t row) const {
    return at_peak(row) * factors_.at(runs_[row].features.chip.family);
  }

 private:
  double at_peak(std::size_t row) const {
    const StepFeatures& features = runs_[row].features;
    return features.model_flops / features.profile.flops(hal::DType::bf16);
  }
  const std::vector<PlannedRun>& runs_;
  std::map<std::string, double> factors_;
};

class Validator {
 public:
  Validator(const std::vector<PlannedRun>& runs, const ValidateOptions& options)
      : runs_(runs), options_(options) {
    all_.resize(runs.size());
    std::iota(all_.begin(), all_.end(), 0);
    for (const std::size_t row : all_) by_source_[runs[row].run.source].push_back(row);
    total_ = static_cast<int>(1 + kFolds + by_source_.size());
  }

  std::optional<Validation> run() {
    if (runs_.size() < kFolds)
      throw Error("bench plans", "needs at least five rows that can be composed",
                  std::to_string(runs_.size()));
    if (!says("all rows")) return std::nullopt;
    result_.fit = fit_constants(runs_, all_, prior_fit());
    const MfuConstants constants(runs_, all_);
    std::vector<double> constant, constant_folds(runs_.size());
    for (const std::size_t row : all_) {
      result_.predicted.push_back(predicted_seconds(runs_[row], result_.fit));
      constant.push_back(constants.seconds(row));
    }
    result_.folds.resize(runs_.size());
    Indices order = all_;
    shuffle(order);
    for (std::size_t fold = 0; fold < kFolds; ++fold) {
      if (!says("fold " + std::to_string(fold + 1))) return std::nullopt;
      Indices held;
      for (std::size_t i = fold; i < order.size(); i += kFolds) held.push_back(order[i]);
      const Indices rest = without(all_, held);
      const Fit fit = fit_constants(runs_, rest, prior_fit());
      const MfuConstants of_rest(runs_, rest);
      for (const std::size_t row : held) {
        result_.folds[row] = predicted_seconds(runs_[row], fit);
        constant_folds[row] = of_rest.knows(row) ? of_rest.seconds(row) : constants.seconds(row);
      }
    }
    for (const auto& [source, rows] : by_source_) {
      if (!says(source)) return std::nullopt;
      SourceErrors& errors = result_.sources.emplace_back();
      errors.source = source;
      errors.rows = rows.size();
      const auto of = [&, &own = rows](const std::vector<double>& seconds) {
        return error(own, [&](std::size_t row) { return seconds[row]; });
      };
      errors.planner.all = of(result_.predicted);
      errors.planner.folds = of(result_.folds);
      errors.constant.all = of(constant);
      errors.constant.folds = of(constant_folds);
      if (by_source_.size() > 1) unseen(rows, errors);
    }
    summarize(constant, constant_folds);
    return std::move(result_);
  }

 private:
  bool says(const std::string& what) {
    if (options_.stopped && options_.stopped()) return false;
    if (options_.progress) options_.progress(done_++, total_, what);
    return true;
  }

  template <typename Seconds>
  double error(const Indices& rows, Seconds seconds) const {
    std::vector<double> errors;
    for (const std::size_t row : rows) errors.push_back(error_of(seconds(row), runs_[row].run.seconds));
    return median(errors);
  }

  void unseen(const Indices& rows, SourceErrors& errors) const {
    const Indices others = without(all_, rows);
    const Fit fit = fit_constants(runs_, others, prior_fit());
    errors.planner.unseen = error(rows, [&](std::size_t row) { return predicted_seconds(runs_[row], fit); });
    const MfuConstants constants(runs_, others);
    const bool known =
        std::all_of(rows.begin(), rows.end(), [&](std::size_t row) { return constants.knows(row); });
    if (known) errors.constant.unseen = error(rows, [&](std::size_t row) { return constants.seconds(row); });
    if (rows.size() < 4) return;
    std::vector<double> planner, constant;
    for (const auto& [a, b] : pairs_of(rows)) {
      const Indices rest = without(rows, {a, b});
      Indices seen = others;
      seen.insert(seen.end(), {a, b});
      const Fit two = fit_constants(runs_, seen, fit, kRefitSteps);
      planner.push_back(error(rest, [&](std::size_t row) { return predicted_seconds(runs_[row], two); }));
      if (!known) continue;
      const double factor = std::sqrt(runs_[a].run.seconds / constants.seconds(a) * runs_[b].run.seconds /
                                      constants.seconds(b));
      constant.push_back(error(rest, [&](std::size_t row) { return factor * constants.seconds(row); }));
    }
    errors.planner.unseen_two = median(planner);
    if (known) errors.constant.unseen_two = median(constant);
  }

  void summarize(const std::vector<double>& constant, const std::vector<double>& constant_folds) {
    const auto of = [&](const std::vector<double>& seconds) {
      return error(all_, [&](std::size_t row) { return seconds[row]; });
    };
    result_.planner.all = of(result_.predicted);
    result_.planner.folds = of(result_.folds);
    result_.constant.all = of(constant);
    result_.constant.folds = of(constant_folds);
    const auto over_sources = [&](const auto& errors_of) -> std::optional<double> {
      std::vector<double> values;
      for (const SourceErrors& source : result_.sources)
        if (const std::optional<double> value = errors_of(source)) values.push_back(*value);
      if (values.empty()) return std::nullopt;
      return median(values);
    };
    result_.planner.unseen = over_sources([](const SourceErrors& source) { return source.planner.unseen; });
    result_.planner.unseen_two =
        over_sources([](const SourceErrors& source) { return source.planner.unseen_two; });
    result_.constant.unseen = over_sources([](const SourceErrors& source) { return source.constant.unseen; });
    result_.constant.unseen_two =
        over_sources([](const SourceErrors& source) { return source.constant.unseen_two; });
  }

  const std::vector<PlannedRun>& runs_;
  const ValidateOptions& options_;
  Indices all_;
  std::map<std::string, Indices> by_source_;
  Validation result_;
  int done_ = 0, total_ = 0;
};

}  // namespace

std::optional<Validation> validate(const std::vector<PlannedRun>& runs, const ValidateOptions& options) {
  return Validator(runs, options).run();
}

}  // namespace meshloom::bench
