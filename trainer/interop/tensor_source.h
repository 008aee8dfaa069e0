// Where an import takes tensors from, under the names that transformers gives them: the files of a Hugging Face directory, or
// one GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

class TensorSource {
 public:
  struct Info {
    std::string dtype;  // as the file names it
    std::vector<std::int64_t> shape;
    bool readable = true;  // as f32
  };

  virtual ~TensorSource() = default;
  // What says which tensors there must be, for messages.
  virtual std::string described_by() const = 0;
  virtual std::vector<std::string> names() const = 0;  // in order, at least one
  virtual std::optional<Info> find(std::string_view name) const = 0;
  // For messages: the file that has a tensor ("" = any), and the tensor in it.
  virtual std::string file_of(std::string_view name) const = 0;
  virtual std::string place(std::string_view name) const = 0;
  // Reads a tensor that find() has, in f32. Throws Error naming the file.
  virtual void read(std::string_view name, std::vector<float>& into) const = 0;
  // Whether a tensor is stored in blocks, kept or not.
  virtual bool in_blocks(std::string_view /*name*/) const { return false; }
  // The format (kernels/block_quantized/formats.h) of a matrix that is stored in blocks along the rows that read() gives; "" = it is not.
  virtual std::string block_format(std::string_view /*name*/) const { return {}; }
  // Reads such a matrix as it is stored. Throws Error naming the file.
  virtual void read_blocks(std::string_view /*name*/, std::vector<std::byte>& into) const { into.clear(); }
};

}  // namespace meshloom::trainer
