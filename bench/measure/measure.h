// Takes timing samples of one subject, or of two in turn.
#pragma once

#include <functional>
#include <vector>

#include "bench/measure/ceilings.h"
#include "bench/measure/subject.h"

namespace meshloom::bench {

struct MeasureOptions {
  Buffers buffers = Buffers::warm;
  double seconds = 0.5;  // per subject, without warm-up
  int min_samples = 5;   // unless they take longer than four times `seconds` and than 0.2 s
  int max_samples = 400;
  Evictor* evictor = nullptr;     // for cold buffers
  std::function<bool()> stopped;  // called between samples; may be empty
  // A first call that takes longer than this, in seconds, is not dominated by compiling: a single subject
  // with warm buffers then has it as its only sample.
  double slow = 20;
  bool busy_before = false;  // the device was at work until now: a GPU has its full clock
};

struct Samples {
  std::vector<double> seconds;  // per call, in the order in which they were taken
  int calls = 1;                // in one sample
};

// Returns one entry per subject. Two subjects are sampled A B A B ..., so that both see the same state of the
// machine.
std::vector<Samples> measure(const std::vector<Subject*>& subjects, const MeasureOptions& options);

}  // namespace meshloom::bench
