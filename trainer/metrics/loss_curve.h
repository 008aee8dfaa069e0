// Draws the loss over the steps of a run as an SVG.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace meshloom::trainer {

struct LossPoint {
  std::int64_t step = 0;
  double loss = 0;                  // nats per token
  std::optional<double> eval_loss;  // of steps with an evaluation
};

// Reads the steps of a metrics.jsonl. Throws Error naming the first line that is no step.
std::vector<LossPoint> read_losses(const std::string& path);

// A self-contained SVG with training loss, evaluation loss, and axes with round numbers. Points that are not
// finite are left out; without any point the axes stand alone.
std::string loss_curve_svg(const std::vector<LossPoint>& points, const std::string& title);

}  // namespace meshloom::trainer
