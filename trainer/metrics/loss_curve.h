// The loss over the steps of a run, as a picture any browser shows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace meshloom::trainer {

struct LossPoint {
  std::int64_t step = 0;
  double loss = 0;                  // nats per token
  std::optional<double> eval_loss;  // where it was taken
};

// Reads the steps of a metrics.jsonl. Throws Error naming the line that is not one of ours.
std::vector<LossPoint> read_losses(const std::string& path);

// One self-contained SVG: training loss, evaluation loss, axes with round numbers. Non-finite points are left
// out; no point at all gives the axes alone.
std::string loss_curve_svg(const std::vector<LossPoint>& points, const std::string& title);

}  // namespace meshloom::trainer
