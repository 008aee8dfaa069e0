// Holds an optimizer to its formulas, written as plain loops in double precision.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/learner/learner.h"

namespace meshloom::tests {

using Doubles = std::vector<double>;

struct ParameterShape {
  std::int64_t rows, columns;  // columns 0: a vector
  std::int64_t experts = 0;    // 0: a matrix, else so many
};

// Shapes of a parameter: matrices that are wide and narrow, a vector, one element.
extern const std::vector<ParameterShape> kShapes;

struct Updated {
  Doubles parameter;
  std::map<std::string, Doubles> slots;  // those of f32
};

struct GradientStep {
  Doubles gradient;
  double rate, scale;
  bool apply = true;
};

// The names of all learners.
std::vector<std::string> learner_names();
// A learner or a schedule from text, "Sgd{peak_learning_rate=1}".
std::unique_ptr<layers::Config> parse_learner(const std::string& text);
Doubles random_values(std::size_t count, std::uint64_t seed);

// The parameter of a program that only updates, run by the contracts' references. `axis` is the axis of its rows.
Updated run_updates(const trainer::Learner::Config& learner, const ParameterShape& shape,
                    const Doubles& start, const std::vector<GradientStep>& steps,
                    const std::string& axis = "mlp");

// What one step does to `p`, in double. `step` counts from 1.
using Oracle = std::function<void(Doubles& p, std::map<std::string, Doubles>& slots, const Doubles& g,
                                  double rate, double step, const ParameterShape& shape)>;

// Every optimizer's own numbers round a few times per step; a matrix product sums `columns` of them.
constexpr double kTolerance = 1e-5;

// Several steps, one of them skipped, of the optimizer that `text` describes. The skipped one must change nothing.
void expect_follows(const std::string& text, const ParameterShape& shape, const Oracle& oracle,
                    double tolerance = kTolerance, const std::string& axis = "mlp");

// The slot of that name, which starts with zeros.
Doubles& slot(std::map<std::string, Doubles>& slots, const char* name, std::size_t count);
// Weight decay is for matrices.
double decay_of(const ParameterShape& shape, double decay);

}  // namespace meshloom::tests
