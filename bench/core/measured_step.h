// What `meshloom bench train_step --json` measured of a step, perhaps on another machine, to stand beside an estimate of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "bench/core/estimate.h"
#include "bench/core/report.h"

namespace meshloom::bench {

struct MeasuredStep {
  struct Calls {          // all equal calls of one step
    std::string variant;  // of the first
    std::int64_t times = 0;
    double seconds = 0;  // together, by the device's clock
  };
  Header header;
  double tokens = 0;                   // of a step
  double wall_seconds = 0;             // of a whole step
  double kernel_seconds = 0;           // of its calls, one after another
  std::map<std::string, Calls> calls;  // by their text
};

// Throws Error (where = `where`) for what is no such file, and for a run that was stopped before its first step.
MeasuredStep parse_measured_step(std::string_view text, const std::string& where);

// Writes what was measured into the rows of the estimate, and puts those first whose times differ most. Throws Error (where = `where`)
// for a step of other tokens, or without any call of the estimate.
void compare(EstimatedStep& step, const MeasuredStep& measured, const std::string& where);

}  // namespace meshloom::bench
