// Which tensor of a GGUF file is which tensor of transformers, for each architecture of llama.cpp that is read and written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace meshloom::trainer {

// What differs besides the name.
enum class GgufChange : std::uint8_t {
  none,
  query,       // rows of a head are paired as llama.cpp rotates them
  key,         // the same, with the number of heads of keys
  norm,        // the file has the factor; transformers has the factor minus 1
  transposed,  // transformers has (inputs, outputs)
  experts,     // the file has all experts in one tensor, transformers one tensor for each, "{e}"
};

struct GgufName {
  std::string gguf, hf;  // "{i}" stands for the index of the layer
  GgufChange change = GgufChange::none;
};

// The tensors of a family (a model_type), empty for families that llama.cpp has under no architecture that is known here.
std::vector<GgufName> gguf_names(const std::string& family);
// The families that are read and written, each with its general.architecture.
const std::vector<std::pair<std::string, std::string>>& gguf_families();
// general.architecture of a family; "" = none.
std::string gguf_architecture(const std::string& family);

// Between the rows of a head as transformers has them, (part, pair), and as llama.cpp has them, (pair, part). A row is `row_size`
// numbers, or bytes of blocks.
std::vector<float> pair_rows(std::span<const float> rows, std::int64_t heads, std::int64_t row_size);
template <typename T>
std::vector<T> unpair_rows(std::span<const T> rows, std::int64_t heads, std::int64_t row_size);
// From (rows, columns) to (columns, rows).
std::vector<float> transposed(std::span<const float> matrix, std::int64_t rows, std::int64_t columns);

}  // namespace meshloom::trainer
