// What a list of timings says.
#pragma once

#include <vector>

namespace meshloom::bench {

// Relative interquartile range above which a measurement is called noisy.
constexpr double kNoisySpread = 0.10;
// Fewer samples than these are called noisy whatever they say.
constexpr int kMinSamples = 3;

struct Summary {
  int samples = 0;
  double median = 0, fastest = 0;
  double spread = 0;  // interquartile range / median
  bool noisy = true;  // few samples, a wide spread, or halves whose medians lie kNoisySpread apart
};

// Quantile by linear interpolation between the sorted values, q in [0, 1]; 0 of none.
double quantile(std::vector<double> values, double q);
double median(std::vector<double> values);

// `seconds` in the order in which they were taken.
Summary summarize(const std::vector<double>& seconds);

// Of pairs taken in turn: how many times faster A was than B, as the median of b[i] / a[i]. A neighbour that
// slows the machine down slows both sides of a pair, so this ratio is steadier than that of two medians.
struct Ratio {
  double median = 0;
  double spread = 0;  // interquartile range of the ratios / median
  double low = 0;     // their lower quartile
};
Ratio paired_ratio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace meshloom::bench
