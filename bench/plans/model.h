// The time of a published step by its features and a few constants, fitted to other steps.
//
//   step = (sum over calls of call_seconds (trainer/compose/cost/published.h)) (1 + bubble)
//        + sum over moves of exposed (bytes / rate + alpha log2(ranks) collectives)
//   log(measured) = log(step) + source + error
//
// Constants are logarithms with a normal prior each (what is known of such chips without the table), the factor of a source has one
// around 0, and errors count as in Huber's loss (1964), as tables have runs that were set up badly. A source of many rows
// counts for as much as the root of their number. The most likely constants are found by Levenberg's and Marquardt's steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/plans/features.h"

namespace meshloom::bench {

struct Constant {
  std::string name;
  double prior = 1;   // the most likely value before any row is seen
  double spread = 1;  // of its logarithm
};
const std::vector<Constant>& constants();

// A run with its features.
struct PlannedRun {
  PublishedRun run;
  StepFeatures features;
};

struct Fit {
  std::vector<double> logs;                  // by constants()
  std::map<std::string, double> sources;     // logarithms of their factors
  double at(const std::string& name) const;  // the value of a constant
};
// Before any row was seen.
Fit prior_fit();

// Seconds of a step by constants alone.
double predicted_seconds(const StepFeatures& features, const std::vector<double>& logs);
// With the factor of the run's source, if it has one.
double predicted_seconds(const PlannedRun& run, const Fit& fit);
// How a fit predicts calls of this family of chips.
trainer::CallConstants call_constants(const std::vector<double>& logs, const std::string& family);

// `rows` are indices of `runs`. Deterministic; from `start`, in at most `steps` steps.
Fit fit_constants(const std::vector<PlannedRun>& runs, const std::vector<std::size_t>& rows, const Fit& start,
                  int steps = 25);

}  // namespace meshloom::bench
