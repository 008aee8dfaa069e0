// What layers have in common that store a matrix in blocks, as GGUF files do (kernels/block_quantized/formats.h).
#pragma once

#include <cstdint>
#include <string>

#include "kernels/block_quantized/block_quantized.h"
#include "kernels/block_quantized/formats.h"
#include "layers/adapters/merge.h"
#include "layers/config/field.h"
#include "layers/core/module.h"

namespace meshloom::layers {

// The fields of such a layer.
struct BlockFields {
  std::string format = "q8_0", activations = "int8";
  void visit(FieldVisitor& v);
};

// A matrix (rows, columns) whose rows are stored in blocks.
class BlockStorage {
 public:
  // Throws Error, at `path`, for fields with other values than they may have, and for columns that are no whole blocks.
  BlockStorage(const std::string& path, const BlockFields& fields, std::int64_t rows, std::int64_t columns);

  kernels::TensorType type() const;  // u8 (rows, bytes of a row)
  // Files that do not have the blocks have the matrix in f32, as the tensor `source`. It is quantized where the format can be made.
  QuantizedStorage storage(const std::string& source) const;
  kernels::BlockQuantizedOptions options(kernels::Tensor bias = {}) const;
  // The matrix in f32, from a parameter that stores it so.
  Merge merge(const Parameter& blocks) const;

 private:
  std::string path_, activations_;
  kernels::block_quantized::Format format_;
  std::int64_t rows_, columns_;
};

}  // namespace meshloom::layers
