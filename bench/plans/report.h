// What `bench plans` prints.
#pragma once

#include <string>
#include <vector>

#include "bench/plans/validate.h"

namespace meshloom::bench {

// A run that was not composed, and why.
struct SkippedRun {
  PublishedRun run;
  std::string reason;
};

struct PlansReport {
  std::string table;
  std::vector<PlannedRun> runs;
  std::vector<SkippedRun> skipped;
  Validation validation;
};

std::string to_text(const PlansReport& report);
std::string to_json(const PlansReport& report);
// What each run computes and moves.
std::string features_json(const std::vector<PlannedRun>& runs);

}  // namespace meshloom::bench
