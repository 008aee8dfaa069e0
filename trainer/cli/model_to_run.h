// The model that a command runs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/command.h"
#include "trainer/io/atomic_file.h"

namespace meshloom::trainer {

// A checkpoint of a run; or a Hugging Face directory or a GGUF file, which is imported into a temporary directory for as long as this
// lives. A GGUF file keeps its blocks.
class ModelToRun {
 public:
  // `option` is the option that the path was given to. Prints notes. Throws Error.
  ModelToRun(const std::string& path, const std::string& option, const Registries& registries);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  // What messages call it: the checkpoint's path, or that of what was imported.
  const std::string& shown() const { return shown_; }

 private:
  std::unique_ptr<ScratchDirectory> scratch_;
  std::optional<Checkpoint> checkpoint_;
  std::string shown_;
};

constexpr const char* kModelToRunHelp =
    "The directory of a run (its newest whole checkpoint) or of one checkpoint, a Hugging Face model's "
    "directory, or a "
    "GGUF file";

// Whether the path is a file, or a directory with a Hugging Face model and no checkpoint.
bool is_model_to_import(const std::string& path);

}  // namespace meshloom::trainer
