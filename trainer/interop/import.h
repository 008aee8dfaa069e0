// A Hugging Face directory as a checkpoint, and a checkpoint as a Hugging Face directory. Tensors pass one at a
// time: memory holds the largest one, never the model.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/core/catalog.h"
#include "layers/config/config.h"
#include "trainer/interop/families/note.h"

namespace meshloom::trainer {

struct Imported {
  std::string checkpoint, family;
  std::int64_t parameters = 0;
};

// Reads config.json, the safetensors and the tokenizer (tokenizer_files.h) of `from` and writes step 0 of a run into `out`:
// parameters in f32, no optimizer state, and a recipe to fine-tune with. `out` must hold no checkpoint. Throws Error naming the file and what in it.
Imported import_model(const std::string& from, const std::string& out, const kernels::Catalog& catalog,
                      const layers::ClassTable& classes, const Note& note);

struct ExportOptions {
  std::string dtype = "f32";                 // f32, bf16 or f16
  std::int64_t shard_bytes = 5'000'000'000;  // of one file; more are written where this is not enough
  std::string family;  // the model_type to write it as, where several can describe the model; "" = the first
  bool merge = false;  // merge adapters into the layers they adapt
  bool ema = false;    // the averages that the run kept (learner.ema) instead of the parameters
  std::string
      like;  // a Hugging Face directory whose other fields of config.json and tokenizer's files are taken over
};

// Writes what transformers loads: config.json, model.safetensors or shards with an index, generation_config.json, and the
// tokenizer's files, its chat template among them.
// `out` must not exist or be empty; it appears whole. Returns the family.
std::string export_model(const std::string& checkpoint, const std::string& out, const ExportOptions& options,
                         const layers::ClassTable& classes, const Note& note);

}  // namespace meshloom::trainer
