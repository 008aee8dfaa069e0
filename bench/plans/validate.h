// How well steps are predicted that a fit has not seen.
//
//   all          of rows that the fit has seen
//   5-fold       of a fifth of the rows, by a fit to the others (the fifths are drawn with a fixed seed)
//   unseen       of a source's rows, by a fit to the other sources
//   unseen + 2   the same, after two of its rows: the median over pairs of the median error of its other rows
// Errors are |predicted / measured - 1|. The constant beside it is one part of the peak (MFU) per family of chips, the median of
// the rows that are known, times the geometric mean of what two of a source's rows are off by where two are known.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/plans/model.h"

namespace meshloom::bench {

struct Errors {
  double all = 0, folds = 0;
  std::optional<double> unseen,
      unseen_two;  // none where they cannot be had: one source, fewer than four rows, unknown chips
};

struct SourceErrors {
  std::string source;
  std::size_t rows = 0;
  Errors planner, constant;
};

struct Validation {
  Fit fit;                               // of all rows
  std::vector<double> predicted, folds;  // seconds, by row
  std::vector<SourceErrors> sources;     // by name
  // Medians over rows, and for unseen sources over sources.
  Errors planner, constant;
};

struct ValidateOptions {
  std::function<bool()> stopped;                                               // may be empty
  std::function<void(int done, int total, const std::string& what)> progress;  // may be empty
};
// nullopt when it was stopped. Throws Error for fewer than five rows.
std::optional<Validation> validate(const std::vector<PlannedRun>& runs, const ValidateOptions& options);

}  // namespace meshloom::bench
