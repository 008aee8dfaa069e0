// How far a long run is, on stderr: one line rewritten on a terminal, a line now and then elsewhere.
#pragma once

#include <string>

#include "bench/core/clock.h"

namespace meshloom::bench {

class Progress {
 public:
  // Says nothing at all when `quiet`.
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
