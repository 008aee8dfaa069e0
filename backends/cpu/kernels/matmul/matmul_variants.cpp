// The matmul variants of the CPU: who fits, with which tiles, and how the work is cut.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/gemm/openblas.h"
#include "backends/cpu/kernels/entries.h"

namespace meshloom::backends::cpu {
namespace {

using hal::ProfileKind;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::array<std::uint32_t, 3> grid(std::int64_t x, std::int64_t y, std::int64_t z) {
  return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(z)};
}

void encode_tiles(const EncodeArgs& args, const char* kernel) {
  const MatmulWork work = matmul_work(args);
  record(args, kernel, grid(work.tiles_m(), work.tiles_n(), work.g), to_words(work));
}

Fit fit_naive(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = matmul_refusal(call); !no.empty()) return Fit::no(std::move(no));
  return Fit::yes({{"tile_m", 1}, {"tile_n", 256}});
}

void encode_naive(const EncodeArgs& args) {
  const MatmulWork work = matmul_work(args);
  record(args, "matmul_naive", grid(work.tiles_n(), work.m, work.g), to_words(work));
}

// Slabs depend on the shape alone, never on the number of threads: sgemm's sums may depend on how C is cut.
Fit fit_blas(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = matmul_refusal(call); !no.empty()) return Fit::no(std::move(no));
  if (openblas().sgemm == nullptr) return Fit::no(openblas().why_missing);
  const MatmulWork work = matmul_work(call);
  std::int64_t slabs_m = 1, slabs_n = 1;
  // Halve the longer side until sixteen threads have work, but keep slabs that repay the packing of A and B.
  while (work.g * slabs_m * slabs_n < 16) {
    const std::int64_t rows = div_up(work.m, slabs_m), columns = div_up(work.n, slabs_n);
    const std::int64_t longer = std::max(rows, columns);
    if (longer < 192 || rows * columns * work.k < (1 << 20)) break;
    (rows >= columns ? slabs_m : slabs_n) *= 2;
  }
  return Fit::yes({{"tile_m", std::min<std::int64_t>(work.m, round_up(div_up(work.m, slabs_m), 16))},
                   {"tile_n", std::min<std::int64_t>(work.n, round_up(div_up(work.n, slabs_n), 16))}});
}

void encode_blas(const EncodeArgs& args) {
  openblas().set_threads(1);  // benchmarks set another number in between
  encode_tiles(args, "matmul_blas");
}

Fit fit_packed(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = matmul_refusal(call, true); !no.empty()) return Fit::no(std::move(no));
  return fit_packed_slabs(matmul_work(call), target);
}

// Slabs and depths around what the estimate chooses from.
std::vector<Fit> packed_alternatives(const CallView& call, const hal::DeviceInfo&) {
  const MatmulWork work = matmul_work(call);
  const std::int64_t standard = packed_depth(work);
  std::set<std::map<std::string, std::int64_t>> all;
  for (const bool swapped : {false, true}) {
    const std::int64_t rows = swapped ? work.n : work.m, columns = swapped ? work.m : work.n;
    for (const std::int64_t tile_right : {64, 128, 256, 512, 1024}) {
      if (tile_right >= columns + 64) break;
      for (const std::int64_t height : {48, 96, 192, 384, 768}) {
        const std::int64_t tile_left = std::min<std::int64_t>(rows, height);
        for (const std::int64_t depth : {standard, round_up(div_up(standard, 2), 8)})
          all.insert({{"tile_m", swapped ? tile_right : tile_left},
                      {"tile_n", swapped ? tile_left : tile_right},
                      {"tile_k", depth},
                      {"panel", packed_panel(work, tile_left)},
                      {"swapped", swapped}});
        if (tile_left == rows) break;
      }
    }
  }
  std::vector<Fit> result;
  for (const auto& params : all) result.push_back(Fit::yes(params));
  return result;
}

// Lengths that cut `size` into about equal pieces of at most `longest`, in multiples of `unit`: the longest
// first, none but the first below `least`, no more than `most` pieces beyond the fewest.
std::vector<std::int64_t> even_cuts(std::int64_t size, std::int64_t longest, std::int64_t unit,
                                    std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> lengths;
  const std::int64_t fewest = div_up(size, longest);
  for (std::int64_t pieces = fewest; pieces <= fewest + most; ++pieces) {
    const std::int64_t length = std::min(size, round_up(div_up(size, pieces), unit));
    if (!lengths.empty() && length == lengths.back()) continue;
    if (!lengths.empty() && length < least) break;
    lengths.push_back(length);
  }
  return lengths;
}

void encode_packed(const EncodeArgs& args) { encode_tiles(args, "matmul_packed"); }

// Beyond these rows register blocks read B no slower, and compute faster.
Fit fit_skinny(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = matmul_refusal(call); !no.empty()) return Fit::no(std::move(no));
  const MatmulWork work = matmul_work(call);
  const std::int64_t most = work.trans_b ? 8 : 2;
  if (work.m > most)
    return Fit::no(std::to_string(work.m) + " rows are more than the " + std::to_string(most) +
                   " for which B is read from where it lies");
  if (work.trans_a && work.trans_b) return Fit::no("both A and B are transposed");
  // Rows of B that stay in the second-level cache for the next rows of A; else stretches of rows, the longer
  // the better.
  constexpr std::int64_t kLongest = 4096;
  const std::int64_t cores = std::clamp(target.profile.cores, 1, 64),
                     cuts = round_up(div_up(work.n, kLongest), cores);
  const std::int64_t share = std::max<std::int64_t>(64, round_up(div_up(work.n, cuts), 16));
  return Fit::yes({{"tile_m", work.m}, {"tile_n", work.trans_b ? 48 : share}});
}

void encode_skinny(const EncodeArgs& args) { encode_tiles(args, "matmul_skinny"); }

// Square tiles with 8x8 sums per invocation, as deep a slab as shared memory holds.
Fit fit_gpu_tile(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = matmul_refusal(call); !no.empty()) return Fit::no(std::move(no));
  const hal::Profile& profile = target.profile;
  const MatmulWork work = matmul_work(call);
  for (std::int64_t tile : {128, 64, 32, 16}) {
    if (tile > 16 && tile >= 2 * std::max(work.m, work.n)) continue;
    if (profile.max_workgroup > 0 && (tile / 8) * (tile / 8) > profile.max_workgroup) continue;
    for (std::int64_t depth : {32, 16, 8})
      if (2 * tile * depth * 4 <= profile.scratch_bytes)
        return Fit::yes({{"tile_m", tile}, {"tile_n", tile}, {"tile_k", depth}});
  }
  return Fit::no(
      "slabs of 16x8 of A and B need 1024 bytes of scratch memory and 4 invocations per workgroup; "
      "profile " +
      profile.name + " has " + std::to_string(profile.scratch_bytes) + " bytes and " +
      std::to_string(profile.max_workgroup) + " invocations");
}

void encode_gpu_tile(const EncodeArgs& args) { encode_tiles(args, "matmul_gpu_tile"); }

// Two weight tiles (one loads while the other works), then as many rows as the scratchpad holds of A and of
// sums.
Fit fit_tpu_stationary(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = matmul_refusal(call); !no.empty()) return Fit::no(std::move(no));
  const hal::Profile& profile = target.profile;
  const std::int64_t tile_n = profile.matrix_tile.n, tile_k = profile.matrix_tile.k;
  if (tile_n <= 0 || tile_k <= 0) return Fit::no("profile " + profile.name + " has no matrix unit");
  const std::int64_t row_bytes = (tile_k + tile_n) * 4, weights = 2 * tile_k * tile_n * 4;
  const std::int64_t panel = (profile.scratch_bytes - weights) / row_bytes;
  if (panel < 8)
    return Fit::no("two weight tiles of " + std::to_string(tile_k) + "x" + std::to_string(tile_n) +
                   " and 8 rows need " + std::to_string(weights + 8 * row_bytes) +
                   " bytes of scratchpad; profile " + profile.name + " has " +
                   std::to_string(profile.scratch_bytes));
  constexpr std::int64_t kLongest = 2048;  // more rows per weight tile repay its load no better
  const std::int64_t m = matmul_work(call).m;
  return Fit::yes(
      {{"tile_m", std::min({panel, kLongest, round_up(m, 8)})}, {"tile_n", tile_n}, {"tile_k", tile_k}});
}

void encode_tpu_stationary(const EncodeArgs& args) { encode_tiles(args, "matmul_tpu_stationary"); }

// A moving tile is as wide as a PSUM bank; half the banks accumulate while the other half is evacuated.
Fit fit_trainium_psum(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = matmul_refusal(call); !no.empty()) return Fit::no(std::move(no));
  const hal::Profile& profile = target.profile;
  if (profile.partitions <= 0 || profile.accumulator_banks <= 0 || profile.accumulator_bytes <= 0)
    return Fit::no("profile " + profile.name + " has no partitions or no PSUM banks");
  const std::int64_t bank = profile.accumulator_bytes / profile.partitions / profile.accumulator_banks / 4;
  const auto within = [](std::int64_t limit, std::int64_t unit) {
    return unit > 0 ? std::min(limit, unit) : limit;
  };
  const std::int64_t tile_k = within(profile.partitions, profile.matrix_tile.k);
  const std::int64_t tile_m = within(profile.partitions, profile.matrix_tile.m);
  const std::int64_t tile_n = within(bank, profile.matrix_tile.n);
  if (tile_n < 16)
    return Fit::no("a PSUM bank must hold 16 sums per partition; profile " + profile.name + " holds " +
                   std::to_string(bank));
  const std::int64_t bytes = 2 * tile_k * (tile_m + tile_n) * 4;
  if (bytes > profile.scratch_bytes)
    return Fit::no("two stationary and two moving tiles need " + std::to_string(bytes) +
                   " bytes of SBUF; profile " + profile.name + " has " +
                   std::to_string(profile.scratch_bytes));
  const std::int64_t banks = std::max(1, profile.accumulator_banks / 2);
  return Fit::yes({{"tile_m", tile_m},
                   {"tile_n", tile_n},
                   {"tile_k", tile_k},
                   {"panel", std::min(banks, div_up(matmul_work(call).n, tile_n))}});
}

void encode_trainium_psum(const EncodeArgs& args) {
  const MatmulWork work = matmul_work(args);
  record(args, "matmul_trainium_psum", grid(work.tiles_m(), div_up(work.tiles_n(), work.panel), work.g),
         to_words(work));
}

}  // namespace

// The shortest estimated time over all ways to cut, as multiply-adds per step of k.
Fit fit_packed_slabs(const MatmulWork& work, const hal::DeviceInfo& target) {
  const std::int64_t cores = std::clamp(target.profile.cores, 1, 64);
  // What reading an element of either side takes beside the multiply-adds, as measured with eight lanes.
  constexpr double kInPlace = 2, kRowsCopied = 8, kPackedOnTheWay = 10, kTransposed = 12;
  const std::int64_t panel = micro_tile().columns;
  // A word meets as many more of them at once on the matrix unit.
  constexpr double kTiles = 5;
  const bool tiles = work.in_tiles();
  const double lanes = static_cast<double>(panel) / 16 * (tiles ? kTiles : 1);
  // Beyond these, sums leave the third-level cache (the second-level one, where they come and go so fast)
  // between blocks of k, and panels of columns the second-level one. Where pairs of panels pass through the
  // registers (Intel), that is felt.
  const std::int64_t depth = packed_depth(work);
  std::int64_t tallest = 2048, widest = 1024;
  if (tiles)
    tallest = widest = 512;
  else if (work.by_two_panels(std::max(work.m, work.n)))
    widest = std::min(widest, (std::int64_t{1} << 18) / depth);
  const std::int64_t strip = tiles ? kTileRows : 12;
  constexpr double kUneven = 0.03;  // of an item: smaller ones even out a core that is slow
  std::map<std::string, std::int64_t> best_params;
  double best = 0;
  for (const bool swapped : {false, true}) {
    const std::int64_t rows = swapped ? work.n : work.m, columns = swapped ? work.m : work.n;
    const bool left_in_rows = swapped ? work.trans_b : !work.trans_a;
    const bool right_in_rows = swapped ? work.trans_a : !work.trans_b;
    const bool copied =
        packs_left(work.paired() ? work.k / 2 : work.k, 1, tiles, work.by_two_panels(columns));
    const double left = lanes * (!left_in_rows ? kTransposed : copied ? kRowsCopied : kInPlace);
    const double right = lanes * (right_in_rows ? kPackedOnTheWay : kTransposed);
    const double turn = swapped ? lanes * kTransposed / std::max(1, work.k) : 0;
    for (const std::int64_t tile_right : even_cuts(columns, widest, panel, 64, 16 * cores))
      for (const std::int64_t tile_left : even_cuts(rows, tallest, strip, 2 * strip, 16 * cores)) {
        const std::int64_t items = work.g * div_up(rows, tile_left) * div_up(columns, tile_right);
        const auto width = static_cast<double>(round_up(std::min(tile_right, columns), panel));
        const auto height = static_cast<double>(tile_left);
        const double item = width * height * (1 + turn) + right * width + left * height;
        // The last round leaves cores idle.
        const double time = item * (static_cast<double>(div_up(items, cores)) + (cores > 1 ? kUneven : 0.0));
        if (!best_params.empty() && time >= best * 0.999) continue;
        best = time;
        best_params = {{"tile_m", swapped ? tile_right : tile_left},
                       {"tile_n", swapped ? tile_left : tile_right},
                       {"tile_k", depth},
                       {"panel", packed_panel(work, tile_left)},
                       {"swapped", swapped}};
      }
  }
  return Fit::yes(std::move(best_params));
}

std::int64_t packed_panel(std::int64_t rows) {
  constexpr std::int64_t kMost = 144, kStandard = 96;
  if (rows <= kMost) return rows;
  if (micro_tile().columns <= 16) return kStandard;
  return round_up(div_up(rows, div_up(rows, kMost)), micro_tile().rows);
}

std::int64_t packed_panel(const MatmulWork& work, std::int64_t rows) {
  constexpr std::int64_t kInTiles = 256;
  if (!work.in_tiles()) return packed_panel(rows);
  return rows <= kInTiles ? rows : round_up(div_up(rows, div_up(rows, kInTiles)), kTileRows);
}

std::int64_t packed_depth(const MatmulWork& work) {
  const std::int64_t steps = work.paired() ? 2 * packed_depth(div_up(work.k, 2)) : packed_depth(work.k);
  return work.in_tiles() ? round_up(steps, 2 * kTileWords) : steps;
}

std::int64_t packed_depth(std::int64_t k) {
  const std::int64_t deepest = micro_tile().columns <= 16 ? 384 : 512;
  return std::max<std::int64_t>(1, round_up(div_up(k, div_up(std::max<std::int64_t>(k, 1), deepest)), 8));
}

std::vector<Kernel> matmul_kernels() {
  return {{"matmul_naive", run_matmul_naive},
          {"matmul_blas", run_matmul_blas},
          {"matmul_packed", run_matmul_packed},
          {"matmul_skinny", run_matmul_skinny},
          {"matmul_gpu_tile", run_matmul_gpu_tile},
          {"matmul_tpu_stationary", run_matmul_tpu_stationary},
          {"matmul_trainium_psum", run_matmul_trainium_psum}};
}

void add_matmul_variants(kernels::Catalog& catalog) {
  catalog.add(kernels::Variant{"matmul",
                               "cpu",
                               "naive",
                               {},
                               0,
                               "one pass over k per stretch of a row; the yardstick of the others",
                               fit_naive,
                               encode_naive});
  catalog.add(kernels::Variant{"matmul",
                               "cpu",
                               "blas",
                               {ProfileKind::host},
                               10,
                               "slabs of C by OpenBLAS: packed operands and register blocks",
                               fit_blas,
                               encode_blas});
  kernels::Variant packed{"matmul",
                          "cpu",
                          "packed",
                          {ProfileKind::host},
                          20,
                          "own register blocks over packed panels: slabs follow the cores, epilogue in "
                          "cache; 16-bit floats by the block",
                          fit_packed,
                          encode_packed,
                          packed_alternatives};
  packed.low_precision = true;
  catalog.add(std::move(packed));
  catalog.add(kernels::Variant{"matmul",
                               "cpu",
                               "skinny",
                               {ProfileKind::host},
                               30,
                               "few rows: B streams past once, without a copy",
                               fit_skinny,
                               encode_skinny});
  catalog.add(kernels::Variant{"matmul",
                               "cpu",
                               "gpu_tile",
                               {ProfileKind::gpu},
                               10,
                               "a workgroup per tile of C, slabs of A and B through shared memory",
                               fit_gpu_tile,
                               encode_gpu_tile});
  catalog.add(kernels::Variant{"matmul",
                               "cpu",
                               "tpu_stationary",
                               {ProfileKind::tpu},
                               10,
                               "weight tiles stay in the matrix unit while long panels of rows stream past",
                               fit_tpu_stationary,
                               encode_tpu_stationary});
  catalog.add(kernels::Variant{"matmul",
                               "cpu",
                               "trainium_psum",
                               {ProfileKind::trainium},
                               10,
                               "k on the partitions, moving tiles accumulated in PSUM banks",
                               fit_trainium_psum,
                               encode_trainium_psum});
}

}  // namespace meshloom::backends::cpu
