// Takes samples of subjects, in turn where there are two.
#pragma once

#include <functional>
#include <vector>

#include "bench/core/ceilings.h"
#include "bench/core/subject.h"

namespace meshloom::bench {

struct MeasureOptions {
  Buffers buffers = Buffers::warm;
  double seconds = 0.5;  // per subject, warming up left out
  int fewest = 5;        // samples, unless they take four times `seconds` and 0.2 s
  int most = 400;
  Evictor* evictor = nullptr;     // for cold buffers
  std::function<bool()> stopped;  // asked between samples; may be empty
  // Seconds of a first call beside which compiling it is nothing: alone and warm, it is the one sample.
  double slow = 20;
};

struct Samples {
  std::vector<double> seconds;  // per call, in the order taken
  int calls = 1;                // of one sample
};

// One entry per subject. Two are sampled A B A B ..., so that both see the same machine.
std::vector<Samples> measure(const std::vector<Subject*>& subjects, const MeasureOptions& options);

}  // namespace meshloom::bench
