// Turns timed train steps into the times that plans predict with, and compares predictions with whole steps.
#pragma once

#include <string>
#include <vector>

#include "bench/core/train_step.h"
#include "trainer/compose/cost/measured_times.h"

namespace meshloom::bench {

// Adds the calls of the report, which must have run at least one step, and the step, under report.recipe. Equal calls count
// together. Other work on the machine lengthens whole steps by more than the median of a call: the times of the calls are
// scaled so that they sum to the median of the steps that were timed call by call.
void record(const StepReport& report, trainer::MeasuredTimes& times);

// One recipe's step as it ran and as it is predicted.
struct PredictedStep {
  std::string name;
  double wall = 0;                 // seconds of a whole step
  double measured = 0;             // predicted from the times of its calls
  double held_out = 0;             // predicted from the times of the other recipes alone
  double similar = 0, fitted = 0;  // the parts of held_out whose calls no other recipe has

  double measured_error() const { return measured / wall - 1; }
  double held_out_error() const { return held_out / wall - 1; }
};

// The median of the errors' absolute values.
double median_error(const std::vector<PredictedStep>& steps, double (PredictedStep::*error)() const);
std::string to_text(const std::vector<PredictedStep>& steps);
std::string to_json(const std::vector<PredictedStep>& steps, const Header& header);

}  // namespace meshloom::bench
