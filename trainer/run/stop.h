// Signals that ask a run to stop; the training loop looks for them between micro-batches.
#pragma once

#include <string>

namespace meshloom::trainer {

// While an object of this class lives, INT, TERM, HUP, USR1, USR2, XCPU and ALRM are recorded instead of
// ending the process: schedulers send them before they kill a job, terminals when they close. A second INT or
// TERM ends the process at once, without a checkpoint, unless it comes within half a second of the first:
// launchers send TERM both to a process and to its group. A signal that was ignored when the program started
// (nohup, a shell's background job) stays ignored. QUIT still ends the process. There may be one object at a
// time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool requested() const;
  // The name of the first signal that came: "SIGTERM".
  std::string name() const;
};

}  // namespace meshloom::trainer
