// The tensors of a checkpoint's model or optimizer: whole in one file, or in pieces of several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/checkpoint/manifest.h"
#include "trainer/io/safetensors.h"
#include "trainer/mesh/layout.h"

namespace meshloom::trainer {

class StoredTensors {
 public:
  StoredTensors(SafetensorsFile file);
  // Pieces of files in a directory; `path` is what messages call all of it. Throws Error where a file does not hold exactly
  // the pieces that `tensors` says, which are whole (check_pieces).
  StoredTensors(const std::string& directory, std::string path, std::vector<TensorInPieces> tensors);

  const std::string& path() const { return path_; }
  // Their begin and end are of no file, where tensors are in pieces.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  // `into` must have exactly the tensor's bytes.
  void read(const StoredTensor& tensor, std::span<std::byte> into) const;
  // The part of a tensor, whose shape is layout.whole's; reads no other bytes. `into` must have the part's size.
  void read(const StoredTensor& tensor, const Layout& layout, std::span<std::byte> into) const;

 private:
  struct Piece {
    const SafetensorsFile* file;
    const StoredTensor* stored;
    Layout layout;
  };
  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<StoredTensor> tensors_;                          // must not change
  std::unordered_map<std::string_view, std::size_t> by_name_;  // indices of tensors_
  std::vector<std::vector<Piece>> pieces_;                     // of each of tensors_
};

}  // namespace meshloom::trainer
