// The checkpoints of a run: DIR/step-00000050/{model.safetensors, optimizer.safetensors, config.txt,
// state.json, manifest.json} and the tokenizer's files; over several ranks a file per rank that writes,
// model-00002-of-00004.safetensors, in place of the former two. A checkpoint is whole or absent: it is written under
// a temporary name, synced, and renamed. A checkpoint from which no run should continue is marked unhealthy
// by a file unhealthy.txt, whose line says why; removing that file removes the mark.
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
#include "trainer/checkpoint/stored_tensors.h"
#include "trainer/io/safetensors.h"

namespace meshloom::trainer {

struct NamedTensor {
  std::string name;
  kernels::TensorType type;
};

struct CheckpointContents {
  std::vector<NamedTensor> model, optimizer;
  std::string config;                                      // the resolved recipe as text
  std::string state;                                       // a JSON object
  std::vector<std::pair<std::string, std::string>> files;  // name and bytes of further files
  // Reads a tensor's bytes.
  std::function<void(const std::string& name, std::span<std::byte> into)> read;
  // Writes the tensors in place of `read`, into a directory that is there, and says which files these are and what lies in
  // them: over several ranks, all of which write. Empty = this process writes them.
  struct Written {
    std::vector<FileRecord> files;
    std::vector<TensorInPieces> model, optimizer;
  };
  std::function<Written(const std::string& directory)> write_pieces;
  // Called after all tensors were read: why the checkpoint is unhealthy, "" = it is healthy. May be empty.
  std::function<std::string()> unhealthy;
};

// A checkpoint could not be written.
class SaveFailed : public hal::Error {
 public:
  using Error::Error;
};

// Writes the checkpoint of step `step` under `directory`, then calls retain_checkpoints for `keep`. Returns
// the new checkpoint's path. Throws SaveFailed, and whatever contents.read throws; earlier checkpoints are
// then unchanged.
std::string save_checkpoint(const std::string& directory, std::int64_t step,
                            const CheckpointContents& contents, std::int64_t keep);

// Of the checkpoints up to step `step`, keeps
//   the newest `keep` healthy ones (0 = all),
//   the newest healthy one up to step `verified`, and
//   the newest unhealthy one if it is newer than every healthy one,
// and removes all others. A checkpoint that a reader has locked (checkpoint_lock.h) stays until the next
// call. Returns "", or why one could not be removed.
std::string retain_checkpoints(const std::string& directory, std::int64_t step, std::int64_t keep,
                               std::int64_t verified = std::numeric_limits<std::int64_t>::max());

// Removes what interrupted saves and removals left behind, as far as it can. Only the run that holds the
// directory's lock may call this.
void remove_leftovers(const std::string& directory);

// Why a checkpoint is unhealthy; "" = it is healthy.
std::string unhealthy_reason(const std::string& path);
// Throws Error.
void mark_unhealthy(const std::string& path, const std::string& reason);

struct Checkpoint {
  std::string path;
  std::int64_t step = 0;
  std::string config, state;
  StoredTensors model, optimizer;
  std::shared_ptr<const CheckpointReadLock> lock;  // held while any copy of this object lives
};

// Opens one checkpoint and verifies every checksum, unless another rank has done so. A directory named after a step must hold
// that step. Throws Error.
Checkpoint open_checkpoint(const std::string& path, bool verify = true);
// Opens the newest whole and healthy checkpoint of a run, or the newest whole one when none is healthy; notes
// each one that is skipped. Throws Error when none is whole, and VersionMismatch instead of skipping a
// checkpoint of another version. The run may save and remove checkpoints meanwhile. `directory` may also be a
// single checkpoint.
Checkpoint open_newest(const std::string& directory, const std::function<void(const std::string&)>& note);

// Whether the directory is one checkpoint, whole or damaged, and not that of a run.
bool is_checkpoint(const std::string& path);
// The steps that have a directory, newest first.
std::vector<std::int64_t> checkpoint_steps(const std::string& directory);
std::string checkpoint_path(const std::string& directory, std::int64_t step);

// Which part of a tensor is wanted, by its name.
using PartOf = std::function<Layout(const std::string& name)>;

// Passes the tensors to `write` in the order of the file. Throws Error when names, types or shapes differ
// from `wanted`. With `convert`, bf16 becomes f32 where that is wanted, and f32 is rounded to the nearest bf16. With `part`,
// only those parts are read and passed.
void load_tensors(const StoredTensors& file, const std::vector<NamedTensor>& wanted,
                  const std::function<void(const std::string& name, std::span<const std::byte> data)>& write,
                  bool convert = false, const PartOf& part = {});
// The name of a dtype in files: "F32".
std::string stored_dtype(kernels::DType dtype);

}  // namespace meshloom::trainer
