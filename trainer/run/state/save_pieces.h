// How the ranks of a job save one checkpoint: each writes a file of its own.
#pragma once

#include <string>

#include "hal/transport/transport.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/execute/session.h"

namespace meshloom::trainer {

struct SavedPieces {
  CheckpointContents::Written written;
  std::string not_finite;  // what is not finite, in words; "" = all values are
};

// Every rank calls it. Rank 0 gives the directory, which is there and which all hosts share. An element that several ranks
// hold is written by the first of them. Every file is on the disk when this returns, on rank 0, what was written. Throws
// SaveFailed, on every rank the same, that names a rank which could not write its file; what reading a device throws.
SavedPieces save_pieces(Session& session, hal::Transport& transport, const std::string& directory,
                        double patience);

// Every rank calls it, with the run's directory, which is there on rank 0. Returns the first rank that does not see what rank 0
// writes there; -1 = all do.
int rank_without_directory(hal::Transport& transport, const std::string& directory, double patience);

}  // namespace meshloom::trainer
