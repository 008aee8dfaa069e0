// Shows the progress of a run: on a terminal one line that is rewritten, elsewhere lines of text.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

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

// Says of long work, every two seconds, how much of it is done and how long the rest will take.
class ProgressNotes {
 public:
  // `what` as in "12 of 40 tokens are scored, 0:07 left".
  ProgressNotes(std::int64_t count, std::string what, std::function<void(const std::string&)> note)
      : count_(count), what_(std::move(what)), note_(std::move(note)) {}
  void operator()(std::int64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t count_;
  std::string what_;
  std::function<void(const std::string&)> note_;
  Clock::time_point begun_ = Clock::now(), said_ = begun_;
};

}  // namespace meshloom::trainer
