#include "backends/simt/kernels/matmul/matrix_tile.h"

#include <algorithm>
#include <span>

namespace meshloom::backends::simt {
namespace {

struct Block {
  std::int64_t bm, bn, rows, columns, bk;
};
// The largest first. Large blocks read less; small blocks leave work for every core.
constexpr Block kBlocks[] = {{256, 128, 4, 2, 32}, {128, 256, 2, 4, 32}, {128, 128, 2, 2, 32},
                             {128, 128, 2, 4, 32}, {64, 128, 1, 2, 32},  {128, 64, 2, 1, 32},
                             {64, 128, 2, 2, 32},  {128, 64, 2, 2, 32},  {64, 64, 2, 2, 32},
                             {64, 32, 2, 1, 32},   {32, 64, 1, 2, 32},   {32, 32, 1, 1, 32},
                             {16, 64, 1, 2, 32},   {16, 32, 1, 1, 32},   {16, 16, 1, 1, 16}};
// For subgroups of 8 or 16 whose matrices are as wide: eight matrices of sums each, two or four rows of them, since each is loaded
// in more pieces than one of a column.
constexpr Block kNarrowBlocks[] = {{128, 128, 8, 2, 16},  {128, 128, 8, 4, 16}, {64, 128, 4, 2, 16},
                                   {64, 128, 4, 4, 16},   {128, 64, 8, 1, 16},  {128, 64, 8, 2, 16},
                                   {128, 128, 16, 2, 16}, {64, 128, 8, 2, 16},  {64, 64, 4, 1, 16},
                                   {64, 64, 4, 2, 16},    {32, 64, 2, 1, 16},   {32, 64, 2, 2, 16},
                                   {32, 32, 2, 1, 16},    {16, 32, 1, 1, 16},   {16, 16, 1, 1, 16}};
// Small, since emulated matrices are compiled element by element.
constexpr Block kHostBlocks[] = {{16, 32, 1, 2, 16}, {32, 16, 2, 1, 32}, {16, 16, 2, 2, 8}};

std::span<const Block> blocks_for(const hal::DeviceInfo& target) {
  if (target.is_cpu) return kHostBlocks;
  return needs_rolled_sums(target) ? std::span<const Block>(kNarrowBlocks) : kBlocks;
}

}  // namespace

hal::DType matrix_sum(hal::DType in) { return in == hal::DType::i8 ? hal::DType::i32 : hal::DType::f32; }

std::vector<hal::MatrixShape> matrix_shapes(const hal::DeviceInfo& target, hal::DType in) {
  std::vector<hal::MatrixShape> shapes;
  for (const hal::MatrixShape& shape : target.limits.matrix_shapes) {
    // Rows in workgroup memory consist of words of eight elements.
    const bool whole = shape.m % 8 == 0 && shape.n % 8 == 0 && shape.k % 8 == 0;
    if (shape.in == in && shape.sum == matrix_sum(in) && whole) shapes.push_back(shape);
  }
  std::stable_sort(shapes.begin(), shapes.end(), [](const hal::MatrixShape& a, const hal::MatrixShape& b) {
    return a.m * a.n * a.k > b.m * b.n * b.k;
  });
  return shapes;
}

std::int64_t max_sums(std::int64_t lanes) { return lanes >= 32 ? 128 : 64; }

std::vector<hal::Define> matrix_defines(const hal::MatrixShape& shape, std::int64_t lanes) {
  return {{"MATRIX_M", std::to_string(shape.m)},
          {"MATRIX_N", std::to_string(shape.n)},
          {"MATRIX_K", std::to_string(shape.k)},
          {"MATRIX_BF16", shape.in == hal::DType::bf16 ? "1" : "0"},
          {"MATRIX_INT8", shape.in == hal::DType::i8 ? "1" : "0"},
          {"LANES_OF_SUBGROUP", std::to_string(lanes)}};
}

std::int64_t MatrixTile::iterations() const {
  const std::int64_t loads = ceil_div(bm() * bk, 8 * workgroup()) + ceil_div(bn() * bk, 8 * workgroup());
  return 1 + 2 * loads + bk / shape.k * (1 + fm + fn + fm * fn);
}

std::int64_t MatrixTile::end_iterations() const { return fm * fn * (2 + ceil_div(shape.m * shape.n, lanes)); }

std::array<std::int64_t, 3> MatrixTile::groups(std::int64_t m, std::int64_t n, std::int64_t g) const {
  return {ceil_div(n, bn()), ceil_div(m, bm()), g};
}

std::array<std::int64_t, 3> MatrixTile::groups(const Product& product) const {
  const kernels::MatmulDims& d = product.dims;
  return {ceil_div(d.n, bn()), product.use.tiles(d.m, bm()), d.g};
}

std::vector<hal::Define> MatrixTile::defines() const {
  std::vector<hal::Define> all = matrix_defines(shape, lanes);
  for (const hal::Define& item : {define("SUBGROUPS_M", rows), define("SUBGROUPS_N", columns),
                                  define("MATRICES_M", fm), define("MATRICES_N", fn), define("BK", bk)})
    all.push_back(item);
  return all;
}

std::map<std::string, std::int64_t> MatrixTile::params() const {
  return {{"m", shape.m},       {"n", shape.n}, {"k", shape.k}, {"lanes", lanes}, {"rows", rows},
          {"columns", columns}, {"fm", fm},     {"fn", fn},     {"bk", bk}};
}

MatrixTile MatrixTile::of(const std::map<std::string, std::int64_t>& params, hal::DType in, hal::DType sum) {
  const auto extent = [&](const char* name) { return static_cast<std::int32_t>(params.at(name)); };
  return {{extent("m"), extent("n"), extent("k"), in, sum},
          params.at("lanes"),
          params.at("rows"),
          params.at("columns"),
          params.at("fm"),
          params.at("fn"),
          params.at("bk")};
}

std::vector<MatrixTile> matrix_tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape,
                                     std::int64_t lanes,
                                     const std::function<std::int64_t(const MatrixTile&)>& shared_bytes) {
  std::vector<MatrixTile> result;
  for (const Block& block : blocks_for(target)) {
    if (block.bm % (block.rows * shape.m) != 0 || block.bn % (block.columns * shape.n) != 0) continue;
    MatrixTile tile{shape,
                    lanes,
                    block.rows,
                    block.columns,
                    block.bm / (block.rows * shape.m),
                    block.bn / (block.columns * shape.n),
                    std::max<std::int64_t>(block.bk, shape.k)};
    if (tile.bk % shape.k != 0 || tile.fm * tile.fn * shape.m * shape.n > max_sums(lanes) * lanes) continue;
    if (tile.workgroup() > max_invocations(target) || shared_bytes(tile) > workgroup_bytes(target)) continue;
    result.push_back(tile);
  }
  return result;
}

std::optional<MatrixTile> best_tile(const std::vector<MatrixTile>& tiles, const hal::DeviceInfo& target,
                                    const kernels::MatmulDims& d, bool split) {
  return best_tile(tiles, target, {d, {.unsplit = !split}});
}

std::optional<MatrixTile> best_tile(const std::vector<MatrixTile>& tiles, const hal::DeviceInfo& target,
                                    const Product& product) {
  const kernels::MatmulDims& d = product.dims;
  std::optional<MatrixTile> chosen;
  if (target.is_cpu) {
    for (const MatrixTile& tile : tiles) {
      // A smaller tile is better where this one is at least twice the matrix, or leaves too few workgroups for the cores.
      const bool too_large = chosen && (chosen->bm() >= 2 * product.use.rows(d.m) || chosen->bn() >= 2 * d.n);
      const bool too_few =
          chosen &&
          chosen->groups(d.m, d.n, d.g)[0] * chosen->groups(d.m, d.n, d.g)[1] * d.g < target.profile.cores;
      if (!chosen || too_large || too_few) chosen = tile;
    }
    return chosen;
  }
  constexpr double kMinGain = 1.03;
  double best = 0;
  for (const MatrixTile& tile : tiles) {
    Tiles work = product_tiles(tile, product, target);
    work.groups[1] = product.use.full_tiles(d.m, tile.bm());
    const double time = product_seconds(d, target, work, product.use.may_split());
    if (chosen && time * kMinGain > best) continue;
    chosen = tile;
    best = time;
  }
  return chosen;
}

std::string unsupported_tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape) {
  return "no tile of the driver's matrices (" + to_string(shape) + ", ...) fits its workgroups of " +
         std::to_string(max_invocations(target)) + " invocations and " +
         std::to_string(workgroup_bytes(target)) + " bytes";
}

Tiles product_tiles(const MatrixTile& tile, const Product& product, const hal::DeviceInfo& target) {
  // Of a subgroup from workgroup memory, by RDNA3's; and of the workgroup from device memory. Others are not far from it.
  constexpr double kLoad = 8, kTileLoad = 6;
  constexpr std::int64_t kSubgroups = 8;  // that keep a core busy
  const std::int64_t search = product.use.row_groups > 0 ? kGroupSearch : 0;
  return {.groups = tile.groups(product),
          .step = tile.bk,
          .per_step = tile.iterations(),
          .fixed = tile.end_iterations() + search,
          .elements = tile.bm() * tile.bn(),
          .rate = tile_rate(
              target, tile.shape.in,
              {{tile.fm * tile.shape.m, tile.fn * tile.shape.n, kLoad}, {tile.bm(), tile.bn(), kTileLoad}}),
          .per_core = std::max<std::int64_t>(2, kSubgroups / (tile.rows * tile.columns))};
}

void launch_product(const kernels::EncodeArgs& args, const Product& product, const MatrixTile& tile,
                    Launch own) {
  const kernels::MatmulDims& dims = product.dims;
  const std::vector<hal::Define> of_tile = tile.defines();
  own.defines.insert(own.defines.begin(), of_tile.begin(), of_tile.end());
  for (const hal::Define& item :
       {define("TRANS_A", dims.trans_a), define("TRANS_B", dims.trans_b), define("WIDE_A", has_wide_a(dims)),
        define("WIDE_B", has_wide_b(dims)), define("WIDE_C", dims.n % 8 == 0),
        define("WHOLE_STEPS", product.has_whole_steps(tile.bk))})
    own.defines.push_back(item);
  product.add_groups(args, own);
  own.width = static_cast<std::uint32_t>(tile.workgroup());
  own.groups = matmul_groups(tile.groups(product));
  launch_product(args, dims, own);
}

}  // namespace meshloom::backends::simt
