// Imports a Hugging Face directory or a GGUF file as a checkpoint, and exports a checkpoint as one of them.
// Tensors are converted one at a time: the largest one must fit into memory, not the model.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/core/catalog.h"
#include "layers/config/config.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

struct Imported {
  std::string checkpoint, family;
  std::int64_t parameters = 0;
};

struct ImportOptions {
  // Keep the weights of a GGUF file in its blocks (kernels/block_quantized/formats.h), of which none learns.
  bool keep_quantized = false;
};

// Reads config.json, the safetensors and the tokenizer (tokenizer_files.h) of `from`, or all of it from a GGUF file, and
// writes step 0 of a run into `out`: parameters in f32 unless blocks are kept, no optimizer state, and a recipe for fine-tuning.
// `out` must not have a checkpoint. Throws Error naming the file and what is wrong in it.
Imported import_model(const std::string& from, const std::string& out, const ImportOptions& options,
                      const kernels::Catalog& catalog, const layers::ClassTable& classes, const Note& note);

struct ExportOptions {
  std::string dtype = "f32";                 // f32, bf16 or f16; as GGUF also q8_0
  std::int64_t shard_bytes = 5'000'000'000;  // maximal size of one file; larger models are written as shards
  std::string family;  // the model_type to write, when several can describe the model; "" = the first
  bool merge = false;  // merge adapters into the layers that they adapt
  bool ema = false;    // write the moving averages (learner.ema) instead of the parameters
  // A Hugging Face directory from which further fields of config.json and the tokenizer's files are copied.
  std::string like;
  std::string format = "hf";  // or gguf: one file for llama.cpp
};

// Writes a directory that transformers loads: config.json, model.safetensors or shards with an index,
// generation_config.json, and the tokenizer's files with its chat template. `out` must not exist or be empty;
// it is created atomically. As GGUF it writes one file instead (gguf_export.h). Returns the family.
std::string export_model(const std::string& checkpoint, const std::string& out, const ExportOptions& options,
                         const layers::ClassTable& classes, const Note& note);

}  // namespace meshloom::trainer
