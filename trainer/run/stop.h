// Ctrl-C as a question the training loop asks between steps.
#pragma once

namespace meshloom::trainer {

// While it lives, SIGINT and SIGTERM are remembered; a second one ends the process at once. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool requested() const;
};

}  // namespace meshloom::trainer
