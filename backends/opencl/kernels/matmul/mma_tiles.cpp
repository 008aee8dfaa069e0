#include "backends/opencl/kernels/matmul/mma_tiles.h"

#include <algorithm>

#include "backends/opencl/device/mma.h"

namespace meshloom::backends::opencl {
namespace {

using simt::MatrixTile;

// Of a row of A or B in a tile.
constexpr std::int64_t kRowBytes = 64;
// Without copies that do not wait, a tile that is multiplied and one whose words stand in registers meanwhile.
constexpr std::int64_t kStages = 2;

// `stages` tiles of A and B; in their place, at the end, 16 rows of each warp's sums (see mma_tile.inc).
std::int64_t shared_bytes(const MatrixTile& tile, std::int64_t stages) {
  const std::int64_t warps = tile.rows * tile.columns;
  return std::max(stages * (tile.bm() + tile.bn()) * kRowBytes, 4 * warps * 16 * (8 * tile.fn + 8));
}

std::vector<MatrixTile> all_tiles(const hal::DeviceInfo& target, hal::DType in) {
  std::vector<MatrixTile> all = simt::matrix_tiles(
      target, mma_shape(in), kWarp, [](const MatrixTile& tile) { return shared_bytes(tile, kStages); });
  std::erase_if(all, [](const MatrixTile& tile) {
    // A load gives a warp 16 columns of B; a round of stores fills eight rows of a tile at least (see PLACE). Tiles of 16 rows
    // would read B too often.
    const bool whole = tile.fm % 2 == 0 && tile.fn % 2 == 0 && tile.bk == 32 &&
                       tile.workgroup() >= std::max(tile.bm(), tile.bn());
    // What is on its way stands in registers beside the sums: by what the assembler spills.
    constexpr std::int64_t kMaxBytes = 128;
    return !whole || (tile.bm() + tile.bn()) * kRowBytes > kMaxBytes * tile.workgroup();
  });
  for (MatrixTile& tile : all) tile.bk = kRowBytes / static_cast<std::int64_t>(hal::size_of(in));
  return all;
}

bool fits_async(const MatrixTile& tile, std::int64_t async, const hal::DeviceInfo& target) {
  return shared_bytes(tile, async) <= target.limits.max_local_bytes;
}

}  // namespace

std::map<std::string, std::int64_t> MmaTile::params() const {
  std::map<std::string, std::int64_t> params = tile.params();
  params["async"] = async;
  return params;
}

std::vector<MmaTile> mma_tiles(const hal::DeviceInfo& target, hal::DType in, bool allow_async,
                               std::initializer_list<std::int64_t> asyncs) {
  std::vector<MmaTile> result;
  for (const MatrixTile& tile : all_tiles(target, in))
    for (const std::int64_t async : asyncs)
      if (async == 0 || (allow_async && fits_async(tile, async, target))) result.push_back({tile, async});
  return result;
}

std::optional<MmaTile> best_mma_tile(const hal::DeviceInfo& target, hal::DType in, bool allow_async,
                                     const simt::Product& product) {
  // Three at a time: with two, an H200 multiplied 15 % slower than through registers. Three tiles of 128 x 128 by copies multiply 1.5
  // times as fast there as larger tiles through registers.
  constexpr std::int64_t kAsync = 3;
  std::vector<MatrixTile> all = all_tiles(target, in);
  const auto waits = [&](const MatrixTile& tile) {
    return !allow_async || !fits_async(tile, kAsync, target);
  };
  const bool all_wait = std::all_of(all.begin(), all.end(), waits);
  if (!all_wait) std::erase_if(all, waits);
  const auto tile = simt::best_tile(all, target, product);
  return tile ? std::optional(MmaTile{*tile, all_wait ? 0 : kAsync}) : std::nullopt;
}

std::vector<hal::Define> stage_defines(const std::map<std::string, std::int64_t>& params) {
  const auto found = params.find("async");
  const std::int64_t async = found == params.end() ? 0 : found->second;
  return {simt::define("ASYNC", async > 0), simt::define("STAGES", async > 0 ? async : kStages)};
}

}  // namespace meshloom::backends::opencl
