// Draws the loss or the reward over the steps of a run as an SVG.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace meshloom::trainer {

struct CurvePoint {
  std::int64_t step = 0;
  double value = 0;
  std::optional<double> evaluated;  // of steps with an evaluation
};

// Reads what each step of a metrics.jsonl has as `name`, "loss" or "reward", and as "eval_loss" or "eval_reward". Throws Error naming the
// first line that is no step.
std::vector<CurvePoint> read_curve(const std::string& path, const std::string& name);

// A self-contained SVG with a line of the values, a dot for each evaluation, and axes with round numbers; `label` says what the values
// are. Points that are not finite are left out; without any point the axes stand alone.
std::string curve_svg(const std::vector<CurvePoint>& points, const std::string& title,
                      const std::string& label);

}  // namespace meshloom::trainer
