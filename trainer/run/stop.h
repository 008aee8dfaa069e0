// Signals that ask a run to end, as a question the training loop asks between micro-batches.
#pragma once

#include <string>

namespace meshloom::trainer {

// While it lives, INT, TERM, HUP, USR1, USR2, XCPU and ALRM are remembered instead of ending the process: schedulers send
// them before they kill, terminals when they close. A second INT or TERM ends the process at once, without a checkpoint
// (one within half a second of the first counts as the same: launchers send TERM to a process and to its group). A signal
// that was ignored when the program started (nohup, a shell's background job) stays ignored. QUIT ends the process as
// ever. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool requested() const;
  // Of the first that came: "SIGTERM".
  std::string name() const;
};

}  // namespace meshloom::trainer
