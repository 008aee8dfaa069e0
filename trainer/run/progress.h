// Shows the progress of a run: on a terminal one line that is rewritten, elsewhere lines of text.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "trainer/metrics/json_lines.h"

namespace meshloom::trainer {

class Progress {
 public:
  // Writes to stdout. `first` is the number of steps that were done before.
  Progress(std::int64_t first, std::int64_t last);
  void step(const StepRecord& record);
  // Prints a line that stays.
  void say(const std::string& line);
  void finish();

 private:
  std::string text(const StepRecord& record) const;
  std::int64_t first_, last_;
  bool terminal_;
  bool bar_ = false;           // the terminal shows an unfinished line
  double smooth_seconds_ = 0;  // per step, for the ETA
  std::chrono::steady_clock::time_point said_;
};

// "1:02:03", "4:05"
std::string duration_text(double seconds);

}  // namespace meshloom::trainer
