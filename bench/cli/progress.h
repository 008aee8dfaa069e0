// Shows the progress of a long run on stderr: one line that is rewritten on a terminal, a line from time to
// time elsewhere.
#pragma once

#include <string>

#include "bench/measure/clock.h"

namespace meshloom::bench {

class Progress {
 public:
  // Prints nothing when `quiet`.
  explicit Progress(bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void say(int done, int total, const std::string& what);

 private:
  bool quiet_, terminal_;
  Clock::time_point begin_ = Clock::now(), said_ = begin_;
};

}  // namespace meshloom::bench
