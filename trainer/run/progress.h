// What a person sees of a run: one line that is written over on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "trainer/metrics/json_lines.h"

namespace meshloom::trainer {

class Progress {
 public:
  // Writes to stdout. `first` is the step before the run's first.
  Progress(std::int64_t first, std::int64_t last);
  void step(const StepRecord& record);
  // A line that stays.
  void say(const std::string& line);
  void finish();

 private:
  std::string text(const StepRecord& record) const;
  std::int64_t first_, last_;
  bool terminal_;
  bool bar_ = false;           // an unfinished line stands on the terminal
  double smooth_seconds_ = 0;  // per step, for the ETA
  std::chrono::steady_clock::time_point said_;
};

// "1:02:03", "4:05"
std::string duration_text(double seconds);

}  // namespace meshloom::trainer
