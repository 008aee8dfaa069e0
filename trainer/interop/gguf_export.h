// Writes a model as one GGUF file, which llama.cpp loads.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/data/input_config.h"
#include "trainer/interop/families/layout.h"

namespace meshloom::trainer {

struct GgufExport {
  const Family& family;
  nlohmann::ordered_json config;              // config.json of the model
  const std::vector<TensorMapping>& tensors;  // under their names in transformers
  std::function<std::vector<float>(const TensorMapping&)> read;
  const InputConfig& input;
  std::string like;   // as ExportOptions has it
  std::string dtype;  // f32, f16, bf16 or q8_0
};

// Matrices are written in the dtype, in q8_0 those whose rows are no multiple of 32 as f16; vectors, the router of experts,
// learned positions and factors of RoPE as f32. `out` must not exist; it is written atomically, one tensor (or the experts of
// one layer) in memory at a time. Throws Error for a model or a tokenizer that llama.cpp does not have, and for values outside
// of the range of the dtype.
void write_gguf(const GgufExport& model, const std::string& out, const Note& note);

}  // namespace meshloom::trainer
