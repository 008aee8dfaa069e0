#include "bench/plans/model.h"

#include <algorithm>
#include <cmath>

#include "hal/error.h"

namespace meshloom::bench {
namespace {

constexpr double kError = 0.12;        // of a row, in logarithms
constexpr double kHuber = 0.05;        // errors above count linearly
constexpr double kSourceSpread = 0.2;  // of the logarithms of sources' factors
constexpr double kLongestStep = 0.7;   // of a constant's logarithm
constexpr double kDerivative = 1e-4;

// In the order of constants().
enum Index : std::uint8_t {
  kMatmulRows,
  kMatmulSides,
  kFp8,
  kAttentionGrad,
  kAttentionHead,
  kAttentionRows,
  kMemory,
  kLaunch,
  kExposedInner,
  kExposedOuter,
  kExposedTensor,
  kExposedPipeline,
  kExposedExperts,
  kExposedContext,
  kAlpha,
  kFamilies
};
const std::vector<std::string>& families() {
  static const std::vector<std::string> names = {"a100", "h100", "b200", "mi300x", "tpu"};
  return names;
}
std::size_t family_index(const std::string& family) {
  const auto found = std::find(families().begin(), families().end(), family);
  if (found == families().end()) throw Error("family of chips", "must have constants", family);
  return kFamilies + 2 * static_cast<std::size_t>(found - families().begin());
}

// Solves a x = b for a symmetric positive definite matrix (Cholesky).
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    a[j][j] = std::sqrt(a[j][j]);
    for (std::size_t i = j + 1; i < n; ++i) {
      for (std::size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

double square(double value) { return value * value; }

// The rows of a fit: what they are off by, and how much each counts.
class Rows {
 public:
  Rows(const std::vector<PlannedRun>& runs, const std::vector<std::size_t>& rows) : runs_(runs), rows_(rows) {
    std::map<std::string, double> counts;
    for (const std::size_t row : rows) counts[runs[row].run.source] += 1;
    for (const auto& [source, count] : counts) sources_.push_back(source);
    double sum = 0;
    for (const std::size_t row : rows) {
      const std::string& source = runs[row].run.source;
      source_of_.push_back(static_cast<std::size_t>(
          std::lower_bound(sources_.begin(), sources_.end(), source) - sources_.begin()));
      weights_.push_back(1 / std::sqrt(counts[source]));
      sum += weights_.back();
    }
    for (double& weight : weights_) weight *= static_cast<double>(rows.size()) / sum / square(kError);
  }

  std::size_t size() const { return rows_.size(); }
  const std::vector<std::string>& sources() const { return sources_; }
  std::size_t source_of(std::size_t row) const { return source_of_[row]; }
  double weight(std::size_t row) const { return weights_[row]; }

  std::vector<double> predictions(const std::vector<double>& logs) const {
    std::vector<double> result;
    result.reserve(size());
    for (const std::size_t row : rows_)
      result.push_back(std::log(predicted_seconds(runs_[row].features, logs)));
    return result;
  }
  double measured(std::size_t row) const { return std::log(runs_[rows_[row]].run.seconds); }

 private:
  const std::vector<PlannedRun>& runs_;
  const std::vector<std::size_t>& rows_;
  std::vector<std::string> sources_;
  std::vector<std::size_t> source_of_;
  std::vector<double> weights_;
};

// A point of the search: logarithms of constants, then of sources.
struct Point {
  std::vector<double> at, errors;
  double loss = 0;
};

double loss_of(const Rows& rows, const std::vector<double>& at, const std::vector<double>& predictions,
               std::vector<double>& errors) {
  const std::size_t count = constants().size();
  double loss = 0;
  errors.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    errors[i] = rows.measured(i) - predictions[i] - at[count + rows.source_of(i)];
    const double size = std::abs(errors[i]);
    loss += rows.weight(i) * (size < kHuber ? size * size / 2 : kHuber * (size - kHuber / 2));
  }
  for (std::size_t j = 0; j < count; ++j)
    loss += square((at[j] - std::log(constants()[j].prior)) / constants()[j].spread) / 2;
  for (std::size_t j = count; j < at.size(); ++j) loss += square(at[j] / kSourceSpread) / 2;
  return loss;
}

}  // namespace

const std::vector<Constant>& constants() {
  static const std::vector<Constant> all = [] {
    std::vector<Constant> list = {
        {"matmul_rows", 64, 1},       {"matmul_sides", 128, 1},      {"fp8", 1.5, 0.2},
        {"attention_grad", 0.8, 0.3}, {"attention_head", 32, 0.7},   {"attention_rows", 256, 1},
        {"memory", 0.7, 0.3},         {"launch", 4e-6, 0.7},         {"exposed_inner", 0.15, 0.7},
        {"exposed_outer", 0.15, 0.7}, {"exposed_tensor", 1, 0.5},    {"exposed_pipeline", 1, 0.4},
        {"exposed_experts", 1, 0.5},  {"exposed_context", 0.3, 0.7}, {"alpha", 1e-5, 1}};
    // What products of a family of chips reach, and what its attention does.
    const std::vector<std::pair<double, double>> reached = {
        {0.75, 0.5}, {0.65, 0.45}, {0.65, 0.4}, {0.5, 0.35}, {0.75, 0.4}};
    for (std::size_t i = 0; i < families().size(); ++i) {
      list.push_back({"matmul " + families()[i], reached[i].first, 0.15});
      list.push_back({"attention " + families()[i], reached[i].second, 0.3});
    }
    return list;
  }();
  return all;
}

double Fit::at(const std::string& name) const {
  for (std::size_t i = 0; i < logs.size(); ++i)
    if (constants()[i].name == name) return std::exp(logs[i]);
  throw Error("constants", "must be one of the fit", name);
}

Fit prior_fit() {
  Fit fit;
  for (const Constant& constant : constants()) fit.logs.push_back(std::log(constant.prior));
  return fit;
}

trainer::CallConstants call_constants(const std::vector<double>& logs, const std::string& family) {
  const auto at = [&](std::size_t index) { return std::exp(logs[index]); };
  const std::size_t first = family_index(family);
  return {.matmul = at(first),
          .matmul_rows = at(kMatmulRows),
          .matmul_sides = at(kMatmulSides),
          .fp8 = at(kFp8),
          .attention = at(first + 1),
          .attention_grad = at(kAttentionGrad),
          .attention_head = at(kAttentionHead),
          .attention_rows = at(kAttentionRows),
          .memory = at(kMemory),
          .launch = at(kLaunch)};
}

double predicted_seconds(const StepFeatures& features, const std::vector<double>& logs) {
  const trainer::CallConstants rates = call_constants(logs, features.chip.family);
  const double peak = features.profile.flops(hal::DType::bf16),
               memory = features.profile.memory_bytes_per_second;
  double computing = 0;
  for (const auto& [cost, count] : features.calls)
    computing += count * trainer::call_seconds(cost, rates, peak, memory);
  const double alpha = std::exp(logs[kAlpha]);
  double moving = 0;
  for (const GroupMoves& group : features.moves) {
    const std::size_t exposed = group.what == "tensor"     ? kExposedTensor
                                : group.what == "pipeline" ? kExposedPipeline
                                : group.what == "experts"  ? kExposedExperts
                                : group.what == "context"  ? kExposedContext
                                : group.inner              ? kExposedInner
                                                           : kExposedOuter;
    const double rate = group.inner ? features.chip.inner : features.chip.outer;
    moving += std::exp(logs[exposed]) *
              (group.bytes / rate +
               alpha * group.count * std::log2(std::max<double>(2, static_cast<double>(group.ranks))));
  }
  return computing * (1 + features.bubble) + moving;
}

double predicted_seconds(const PlannedRun& run, const Fit& fit) {
  const auto source = fit.sources.find(run.run.source);
  return predicted_seconds(run.features, fit.logs) *
         (source == fit.sources.end() ? 1 : std::exp(source->second));
}

Fit fit_constants(const std::vector<PlannedRun>& runs, const std::vector<std::size_t>& which,
                  const Fit& start, int steps) {
  const Rows rows(runs, which);
  const std::size_t count = constants().size(), all = count + rows.sources().size();
  Point best;
  best.at = start.logs;
  for (const std::string& source : rows.sources()) {
    const auto known = start.sources.find(source);
    best.at.push_back(known == start.sources.end() ? 0 : known->second);
  }
  std::vector<double> predictions = rows.predictions(best.at);
  best.loss = loss_of(rows, best.at, predictions, best.errors);
  double damping = 1e-2;
  for (int step = 0; step < steps; ++step) {
    // The derivatives of every prediction, and of the loss: weighted normal equations.
    std::vector<std::vector<double>> slopes;
    for (std::size_t j = 0; j < count; ++j) {
      std::vector<double> moved = best.at;
      moved[j] += kDerivative;
      slopes.push_back(rows.predictions(moved));
      for (std::size_t i = 0; i < rows.size(); ++i)
        slopes[j][i] = (slopes[j][i] - predictions[i]) / kDerivative;
    }
    std::vector<std::vector<double>> normal(all, std::vector<double>(all, 0));
    std::vector<double> gradient(all, 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double size = std::abs(best.errors[i]),
                   weight = rows.weight(i) * (size < kHuber ? 1 : kHuber / size);
      const std::size_t own = count + rows.source_of(i);
      for (std::size_t j = 0; j < count; ++j) {
        for (std::size_t k = 0; k <= j; ++k) normal[j][k] += weight * slopes[j][i] * slopes[k][i];
        normal[own][j] += weight * slopes[j][i];
        gradient[j] += weight * slopes[j][i] * best.errors[i];
      }
      normal[own][own] += weight;
      gradient[own] += weight * best.errors[i];
    }
    for (std::size_t j = 0; j < all; ++j) {
      const double spread = j < count ? constants()[j].spread : kSourceSpread;
      normal[j][j] += 1 / square(spread);
      gradient[j] -= (best.at[j] - (j < count ? std::log(constants()[j].prior) : 0)) / square(spread);
    }
    const double before = best.loss;
    for (int attempt = 0; attempt < 8 && best.loss == before; ++attempt) {
      std::vector<std::vector<double>> damped = normal;
      for (std::size_t j = 0; j < all; ++j) damped[j][j] *= 1 + damping;
      const std::vector<double> change = solve(std::move(damped), gradient);
      Point next;
      next.at = best.at;
      for (std::size_t j = 0; j < all; ++j) next.at[j] += std::clamp(change[j], -kLongestStep, kLongestStep);
      std::vector<double> there = rows.predictions(next.at);
      next.loss = loss_of(rows, next.at, there, next.errors);
      if (next.loss < best.loss) {
        best = std::move(next);
        predictions = std::move(there);
        damping = std::max(damping / 5, 1e-6);
      } else {
        damping *= 5;
      }
    }
    if (best.loss == before || before - best.loss < 1e-4 * before) break;
  }
  Fit fit;
  fit.logs.assign(best.at.begin(), best.at.begin() + static_cast<std::ptrdiff_t>(count));
  for (std::size_t j = count; j < all; ++j) fit.sources[rows.sources()[j - count]] = best.at[j];
  return fit;
}

}  // namespace meshloom::bench
