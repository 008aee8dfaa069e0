#include "backends/opencl/kernels/matmul/dpas_tiles.h"

#include <algorithm>
#include <array>

namespace meshloom::backends::opencl {
namespace {

using simt::MatrixTile;

// Two tiles of A and B; in their place, at the end, eight rows of each subgroup's sums (see dpas_finish.inc).
std::int64_t shared_bytes(const MatrixTile& tile) {
  constexpr std::int64_t kPadding = 8;            // words of a band, and of a row of sums
  const std::int64_t of_word = tile.shape.k / 8;  // steps of K
  const auto band = [&](std::int64_t columns) { return tile.bk / of_word * columns + kPadding; };
  const std::int64_t tiles = 2 * (tile.bm() / 8 * band(8) + tile.bn() / tile.shape.n * band(tile.shape.n));
  return 4 * std::max(tiles, tile.rows * tile.columns * 8 * (tile.fn * tile.shape.n + kPadding));
}

}  // namespace

std::vector<MatrixTile> dpas_tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape) {
  struct Block {
    std::int64_t bm, bn, fm, fn;
  };
  // A subgroup's 4 x 4 matrices take half of the larger register file. With fewer, local memory would take longer than they do.
  constexpr std::array kBlocks{Block{256, 128, 4, 4}, Block{128, 256, 4, 4}, Block{128, 128, 4, 4},
                               Block{128, 64, 4, 2},  Block{64, 128, 4, 2},  Block{64, 64, 4, 2},
                               Block{32, 64, 2, 2},   Block{16, 64, 2, 2}};
  const std::int64_t depth = 2 * shape.k;  // of a tile, along K
  std::vector<MatrixTile> all;
  for (const Block& block : kBlocks) {
    const MatrixTile tile{
        shape,    shape.n, block.bm / (8 * block.fm), block.bn / (shape.n * block.fn), block.fm,
        block.fn, depth};
    if (tile.workgroup() <= simt::max_invocations(target) &&
        shared_bytes(tile) <= simt::workgroup_bytes(target))
      all.push_back(tile);
  }
  return all;
}

}  // namespace meshloom::backends::opencl
