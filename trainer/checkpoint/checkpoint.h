// Whole checkpoints of a run: DIR/step-00000050/{model.safetensors, optimizer.safetensors, config.txt, state.json,
// manifest.json}, and the tokenizer's file. A checkpoint is whole or absent: it is written beside its place, synced, and renamed.
// One that holds what no run should go on from has unhealthy.txt beside these, a line that says why; removing that file
// makes it a checkpoint like any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "kernels/program/types.h"
#include "trainer/checkpoint/checkpoint_lock.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/io/safetensors.h"

namespace meshloom::trainer {

struct NamedTensor {
  std::string name;
  kernels::TensorType type;
};

struct CheckpointContents {
  std::vector<NamedTensor> model, optimizer;
  std::string config;                                      // the resolved tree as text
  std::string state;                                       // a JSON object
  std::vector<std::pair<std::string, std::string>> files;  // name and bytes of what else it keeps
  // Fills a tensor's bytes.
  std::function<void(const std::string& name, std::span<std::byte> into)> read;
  // Asked after all of them were read: why the checkpoint is unhealthy, "" = it is not. None = it is not.
  std::function<std::string()> unhealthy;
};

// The file system did not take a checkpoint.
class SaveFailed : public hal::Error {
 public:
  using Error::Error;
};

// Writes step `step` under `directory`, then retain_checkpoints for `keep`. Throws SaveFailed, and whatever
// contents.read throws; what was there before is then as it was. Returns the new checkpoint's path.
std::string save_checkpoint(const std::string& directory, std::int64_t step,
                            const CheckpointContents& contents, std::int64_t keep);

// Of the checkpoints up to step `step` removes all but the newest `keep` that are healthy (0 = removes none), the newest
// healthy one of step `proven` or before, and, where it is newer than every healthy one, the newest unhealthy one. One that
// a reader holds (lease.h) stays until the next call. "", or why one could not be removed.
std::string retain_checkpoints(const std::string& directory, std::int64_t step, std::int64_t keep,
                               std::int64_t proven = std::numeric_limits<std::int64_t>::max());

// Parts of checkpoints that were never committed, or not removed to the end. Best effort; only the run that holds the
// directory's lock may call it.
void remove_leftovers(const std::string& directory);

// Why a checkpoint is unhealthy; "" = it is not.
std::string unhealthy_reason(const std::string& path);
// Throws Error.
void mark_unhealthy(const std::string& path, const std::string& reason);

struct Checkpoint {
  std::string path;
  std::int64_t step = 0;
  std::string config, state;
  SafetensorsFile model, optimizer;
  std::shared_ptr<const CheckpointReadLock> lease;  // held while any copy of it lives
};

// Opens one checkpoint, every checksum verified. A directory named for a step must hold that step. Throws Error.
Checkpoint open_checkpoint(const std::string& path);
// The newest whole and healthy one of a run, or where none is healthy the newest whole one; each that is passed over is
// told to `say`. Throws Error when none is whole, and VersionMismatch rather than passing over one of another version. The run
// may be saving and removing meanwhile. `directory` may also be a single checkpoint.
Checkpoint open_newest(const std::string& directory, const std::function<void(const std::string&)>& say);

// Steps that have a directory, newest first.
std::vector<std::int64_t> checkpoint_steps(const std::string& directory);
std::string checkpoint_path(const std::string& directory, std::int64_t step);

// Copies tensors to `write` in file order. Throws Error for a name, type or shape that differs from `wanted`.
void load_tensors(const SafetensorsFile& file, const std::vector<NamedTensor>& wanted,
                  const std::function<void(const std::string& name, std::span<const std::byte> data)>& write);

}  // namespace meshloom::trainer
