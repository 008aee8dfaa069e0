// Statistics of timings.
#pragma once

#include <vector>

namespace meshloom::bench {

// Relative interquartile range above which a measurement is called noisy.
constexpr double kNoisySpread = 0.10;
// A measurement with fewer samples is always called noisy.
constexpr int kMinSamples = 3;

struct Summary {
  int samples = 0;
  double median = 0, fastest = 0;
  double spread = 0;  // interquartile range / median
  bool noisy = true;  // few samples, a wide spread, or halves whose medians differ by kNoisySpread
};

// The quantile q in [0, 1] by linear interpolation between the sorted values; 0 when there are none.
double quantile(std::vector<double> values, double q);
double median(std::vector<double> values);

// `seconds` in the order in which they were taken.
Summary summarize(const std::vector<double>& seconds);

// How many times faster A is than B, as the median of b[i] / a[i] over samples taken in turn. Other programs
// slow down adjacent samples alike, so this ratio is steadier than the ratio of two medians.
struct Ratio {
  double median = 0;
  double spread = 0;  // interquartile range of the ratios / median
  double low = 0;     // their lower quartile
};
Ratio paired_ratio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace meshloom::bench
