#include "trainer/checkpoint/stored_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

// A range of the tensor's elements in a file.
struct StoredRun {
  std::int64_t whole, count;
  std::size_t piece;
  std::int64_t at;  // the element of the piece
};

}  // namespace

StoredTensors::StoredTensors(SafetensorsFile file) : path_(file.path()) {
  files_.push_back(std::move(file));
  for (const StoredTensor& stored : files_.front().tensors()) {
    tensors_.push_back(stored);
    pieces_.push_back({{&files_.front(), &stored, whole_layout({kernels::DType::f32, stored.shape})}});
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
}

StoredTensors::StoredTensors(const std::string& directory, std::string path,
                             std::vector<TensorInPieces> tensors)
    : path_(std::move(path)) {
  std::map<std::string, std::size_t> names;
  for (const TensorInPieces& tensor : tensors)
    for (const TensorPiece& piece : tensor.pieces) names.emplace(piece.file, 0);
  files_.reserve(names.size());  // pieces point at them
  for (auto& [name, index] : names) {
    index = files_.size();
    files_.emplace_back(directory + "/" + name);
  }
  std::vector<std::size_t> used(files_.size());
  tensors_.reserve(tensors.size());  // by_name_ points into it
  for (TensorInPieces& tensor : tensors) {
    std::vector<Piece> pieces;
    std::int64_t bytes = 0;
    for (const TensorPiece& piece : tensor.pieces) {
      const std::size_t index = names.at(piece.file);
      const StoredTensor* stored = files_[index].find(tensor.name);
      const std::string where = "'" + files_[index].path() + "', tensor " + shown(tensor.name);
      if (!stored) throw Error(where, "must be there: the manifest says so", "it is absent");
      const std::int64_t elements = kernels::elements(stored->shape);
      if (stored->dtype != tensor.dtype || elements != piece.count)
        throw Error(
            where,
            fmt::format("must be the {} elements of {} that the manifest says", piece.count, tensor.dtype),
            fmt::format("{} of {}", elements, stored->dtype));
      ++used[index];
      bytes += stored->bytes();
      pieces.push_back({&files_[index],
                        stored,
                        {{kernels::DType::f32, tensor.shape},
                         piece.begin,
                         piece.extent,
                         {piece.first, piece.count},
                         false,
                         true}});
    }
    pieces_.push_back(std::move(pieces));
    tensors_.push_back({std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape), 0, bytes});
    by_name_[tensors_.back().name] = tensors_.size() - 1;
  }
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (files_[i].tensors().size() != used[i])
      throw Error("'" + files_[i].path() + "'",
                  fmt::format("must hold the {} pieces that the manifest says", used[i]),
                  fmt::format("{} tensors", files_[i].tensors().size()));
}

const StoredTensor* StoredTensors::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void StoredTensors::read(const StoredTensor& tensor, std::span<std::byte> into) const {
  read(tensor, whole_layout({kernels::DType::f32, tensor.shape}), into);
}

void StoredTensors::read(const StoredTensor& tensor, const Layout& layout, std::span<std::byte> into) const {
  const std::string where = "'" + path_ + "', tensor " + shown(tensor.name);
  const std::vector<Piece>& pieces = pieces_.at(by_name_.at(tensor.name));
  const std::int64_t elements = kernels::elements(tensor.shape);
  if (elements == 0) return;
  const std::int64_t size = tensor.bytes() / elements;
  if (layout.whole.shape != tensor.shape ||
      static_cast<std::int64_t>(into.size()) != layout.range.count * size)
    throw Error(where, fmt::format("must be read into the {} bytes of its part", layout.range.count * size),
                fmt::format("{}", into.size()));
  std::vector<StoredRun> runs;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for_runs(pieces[i].layout, [&](std::int64_t whole, std::int64_t at, std::int64_t count) {
      runs.push_back({whole, count, i, at});
    });
  std::sort(runs.begin(), runs.end(),
            [](const StoredRun& a, const StoredRun& b) { return a.whole < b.whole; });
  for_runs(layout, [&](std::int64_t whole, std::int64_t part, std::int64_t count) {
    auto run = std::prev(
        std::upper_bound(runs.begin(), runs.end(), whole,
                         [](std::int64_t element, const StoredRun& one) { return element < one.whole; }));
    while (count > 0) {
      const std::int64_t skipped = whole - run->whole, taken = std::min(count, run->count - skipped);
      const Piece& piece = pieces[run->piece];
      piece.file->read_range(
          *piece.stored, (run->at + skipped) * size,
          into.subspan(static_cast<std::size_t>(part * size), static_cast<std::size_t>(taken * size)));
      whole += taken;
      part += taken;
      count -= taken;
      ++run;
    }
  });
}

}  // namespace meshloom::trainer
