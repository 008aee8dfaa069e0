#include "bench/measure/statistics.h"

#include <algorithm>
#include <cmath>

namespace meshloom::bench {

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  const double part = at - static_cast<double>(low);
  return part == 0 ? values[low] : values[low] + part * (values[high] - values[low]);
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

Summary summarize(const std::vector<double>& seconds) {
  Summary result;
  result.samples = static_cast<int>(seconds.size());
  if (seconds.empty()) return result;
  result.median = median(seconds);
  result.fastest = *std::min_element(seconds.begin(), seconds.end());
  if (result.median > 0) result.spread = (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / result.median;
  const auto half = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  const double first = median({seconds.begin(), half}), second = median({half, seconds.end()});
  const bool drifts = seconds.size() >= 8 && std::abs(second - first) > kNoisySpread * result.median;
  result.noisy = result.samples < kMinSamples || result.spread > kNoisySpread || drifts;
  return result;
}

Ratio paired_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] > 0) ratios.push_back(b[i] / a[i]);
  Ratio result{median(ratios), 0, quantile(ratios, 0.25)};
  if (result.median > 0) result.spread = (quantile(ratios, 0.75) - result.low) / result.median;
  return result;
}

}  // namespace meshloom::bench
