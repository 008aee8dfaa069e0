// Whole checkpoints of a run: DIR/step-00000050/{model.safetensors, optimizer.safetensors, config.txt, state.json,
// manifest.json}, and the tokenizer's file. A checkpoint is whole or absent: it is written beside its place, synced, and renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/program/types.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace meshloom::trainer {

struct NamedTensor {
  std::string name;
  kernels::TensorType type;
};

struct CheckpointContents {
  std::vector<NamedTensor> model, optimizer;
  std::string config;  // the resolved tree as text
  std::string state;   // a JSON object
  std::vector<std::pair<std::string, std::string>> files;  // name and bytes of what else it keeps
  // Fills a tensor's bytes.
  std::function<void(const std::string& name, std::span<std::byte> into)> read;
};

// Writes step `step` under `directory` and then removes all but the newest `keep` (0 = keeps all). Throws Error;
// what was there before is then as it was. Returns the new checkpoint's path.
std::string save_checkpoint(const std::string& directory, std::int64_t step, const CheckpointContents& contents,
                            std::int64_t keep);

struct Checkpoint {
  std::string path;
  std::int64_t step = 0;
  std::string config, state;
  SafetensorsFile model, optimizer;
};

// Opens one checkpoint, every checksum verified. Throws Error.
Checkpoint open_checkpoint(const std::string& path);
// The newest whole one of a run; each that is not whole is told to `say` and passed over. Throws Error when none
// is whole, and OtherVersion rather than passing over one of another version. `directory` may also be a single
// checkpoint.
Checkpoint open_newest(const std::string& directory, const std::function<void(const std::string&)>& say);

// Steps that have a directory, newest first.
std::vector<std::int64_t> checkpoint_steps(const std::string& directory);
std::string checkpoint_path(const std::string& directory, std::int64_t step);

// Copies tensors to `write` in file order. Throws Error for a name, type or shape that differs from `wanted`.
void load_tensors(const SafetensorsFile& file, const std::vector<NamedTensor>& wanted,
                  const std::function<void(const std::string& name, std::span<const std::byte> data)>& write);

}  // namespace meshloom::trainer
