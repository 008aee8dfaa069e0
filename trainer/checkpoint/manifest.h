// The manifest of a checkpoint: its files with a checksum of every chunk, and where the pieces of its tensors are. It is written
// last and makes the checkpoint whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hal/error.h"
#include "trainer/io/atomic_file.h"

namespace meshloom::trainer {

constexpr int kCheckpointFormat = 1;  // model.safetensors and optimizer.safetensors hold whole tensors
constexpr int kPiecesFormat = 2;      // tensors are in pieces, in files of several writers

// A range of the elements of a box of a tensor, both in row-major order, as the tensor of this name in a file.
struct TensorPiece {
  std::string file;
  std::vector<std::int64_t> begin, extent;  // of the box, one entry a dimension
  std::int64_t first = 0, count = 0;        // of the box's elements
  bool operator==(const TensorPiece&) const = default;
};

struct TensorInPieces {
  std::string name, dtype;  // "F32", as in the files
  std::vector<std::int64_t> shape;
  std::vector<TensorPiece> pieces;
  bool operator==(const TensorInPieces&) const = default;
};

// The most dimensions of a tensor.
constexpr std::size_t kMaxPieceRank = 16;

// Throws Error (where = `where`) unless the pieces, in any order, are every element of the tensor once. The boxes of two
// pieces must be equal or have no element in common.
void check_pieces(const TensorInPieces& tensor, const std::string& where);

struct Manifest {
  std::int64_t step = 0;
  std::vector<FileRecord> files;
  std::vector<TensorInPieces> model, optimizer;  // none in kCheckpointFormat

  int format() const { return model.empty() && optimizer.empty() ? kCheckpointFormat : kPiecesFormat; }
};

// The checkpoint was written by another version of the program. Readers do not fall back to an older
// checkpoint then.
class VersionMismatch : public hal::Error {
 public:
  using Error::Error;
};

std::string to_json(const Manifest& manifest);
// Tensors as the manifest lists them. The parser checks everything but whether the pieces are all.
std::string to_json(const std::vector<TensorInPieces>& tensors);
std::vector<TensorInPieces> parse_tensors_in_pieces(std::string_view json, const std::string& where);
// Throws Error (where = `where`) for anything that to_json would not write. Throws VersionMismatch for
// another format number, unless the checksum shows that only the number is damaged, which is an Error.
Manifest parse_manifest(std::string_view json, const std::string& where);
// Throws Error naming the first file and byte range that differ from what the manifest says.
void verify_files(const std::string& directory, const Manifest& manifest);

}  // namespace meshloom::trainer
