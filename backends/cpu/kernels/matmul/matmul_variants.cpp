// The matmul variants of the CPU: which calls they take, with which tiles, and how the work is split.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/gemm/openblas.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"

namespace meshloom::backends::cpu {
namespace {

using hal::ProfileKind;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

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

// Slabs depend on the shape alone, not on the number of threads, since sgemm's sums may depend on the slab.
Fit fit_blas(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = matmul_refusal(call); !no.empty()) return Fit::no(std::move(no));
  if (openblas().sgemm == nullptr) return Fit::no(openblas().why_missing);
  const MatmulWork work = matmul_work(call);
  std::int64_t slabs_m = 1, slabs_n = 1;
  // Halves the longer side until sixteen threads have work, but keeps slabs large enough to repay packing A and B.
  while (work.g * slabs_m * slabs_n < 16) {
    const std::int64_t rows = ceil_div(work.m, slabs_m), columns = ceil_div(work.n, slabs_n);
    const std::int64_t longer = std::max(rows, columns);
    if (longer < 192 || rows * columns * work.k < (1 << 20)) break;
    (rows >= columns ? slabs_m : slabs_n) *= 2;
  }
  return Fit::yes({{"tile_m", std::min<std::int64_t>(work.m, round_up(ceil_div(work.m, slabs_m), 16))},
                   {"tile_n", std::min<std::int64_t>(work.n, round_up(ceil_div(work.n, slabs_n), 16))}});
}

void encode_blas(const EncodeArgs& args) {
  openblas().set_threads(1);  // benchmarks may have set another number
  encode_tiles(args, "matmul_blas");
}

Fit fit_packed(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = matmul_refusal(call, true); !no.empty()) return Fit::no(std::move(no));
  return fit_packed_slabs(matmul_work(call), target);
}

// The slabs and depths that tuning tries.
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
        for (const std::int64_t depth : {standard, round_up(ceil_div(standard, 2), 8)})
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

// Lengths that cut `size` into about equal pieces of at most `max_length`, in multiples of `unit`, the longest first.
// All but the first are at least `min_length`. At most `extra` pieces more than the fewest possible.
std::vector<std::int64_t> even_cuts(std::int64_t size, std::int64_t max_length, std::int64_t unit,
                                    std::int64_t min_length, std::int64_t extra) {
  std::vector<std::int64_t> lengths;
  const std::int64_t fewest = ceil_div(size, max_length);
  for (std::int64_t pieces = fewest; pieces <= fewest + extra; ++pieces) {
    const std::int64_t length = std::min(size, round_up(ceil_div(size, pieces), unit));
    if (!lengths.empty() && length == lengths.back()) continue;
    if (!lengths.empty() && length < min_length) break;
    lengths.push_back(length);
  }
  return lengths;
}

void encode_packed(const EncodeArgs& args) { encode_tiles(args, "matmul_packed"); }

Fit fit_rows(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = matmul_refusal(call, true); !no.empty()) return Fit::no(std::move(no));
  const MatmulWork work = matmul_work(call);
  if (work.trans_a && work.trans_b) return Fit::no("both A and B are transposed");
  // With trans_b, rows of B that stay in the L2 cache for the next rows of A; otherwise chunks of rows of B, the longer
  // the better.
  constexpr std::int64_t kMaxChunk = 4096;
  const std::int64_t cores = std::clamp(target.profile.cores, 1, 64),
                     cuts = round_up(ceil_div(work.n, kMaxChunk), cores);
  const std::int64_t share = std::max<std::int64_t>(64, round_up(ceil_div(work.n, cuts), 16));
  return Fit::yes({{"tile_m", work.m}, {"tile_n", work.trans_b ? 48 : share}});
}

// With more rows, register blocks read B as fast and compute faster.
Fit fit_skinny(const CallView& call, const hal::DeviceInfo& target) {
  Fit fit = fit_rows(call, target);
  if (!fit.ok) return fit;
  const MatmulWork work = matmul_work(call);
  const std::int64_t max_rows = work.trans_b ? 8 : 2;
  if (work.m > max_rows)
    return Fit::no("takes at most " + std::to_string(max_rows) + " rows for this layout of B, not " +
                   std::to_string(work.m));
  return fit;
}

void encode_skinny(const EncodeArgs& args) { encode_tiles(args, "matmul_skinny"); }
void encode_rows(const EncodeArgs& args) { encode_tiles(args, "matmul_rows"); }

// Square tiles with 8x8 sums per invocation, and slabs as deep as fit in shared memory.
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

// Two weight tiles, one of which is loaded while the other is used, and as many rows of A and of sums as fit in the
// scratchpad.
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
  constexpr std::int64_t kMaxRows = 2048;  // more rows per weight tile gain nothing
  const std::int64_t m = matmul_work(call).m;
  return Fit::yes(
      {{"tile_m", std::min({panel, kMaxRows, round_up(m, 8)})}, {"tile_n", tile_n}, {"tile_k", tile_k}});
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
                   {"panel", std::min(banks, ceil_div(matmul_work(call).n, tile_n))}});
}

void encode_trainium_psum(const EncodeArgs& args) {
  const MatmulWork work = matmul_work(args);
  record(args, "matmul_trainium_psum", grid(work.tiles_m(), ceil_div(work.tiles_n(), work.panel), work.g),
         to_words(work));
}

}  // namespace

// The slabs with the shortest estimated time, which is counted in multiply-adds per step of k.
Fit fit_packed_slabs(const MatmulWork& work, const hal::DeviceInfo& target) {
  const std::int64_t cores = std::clamp(target.profile.cores, 1, 64);
  // The measured cost of reading an element of either side, in multiply-adds with eight lanes.
  constexpr double kInPlace = 2, kRowsCopied = 8, kPackedWhileMultiplying = 10, kTransposed = 12;
  const std::int64_t panel = micro_tile().columns;
  // The matrix unit is this much faster per word.
  constexpr double kAmxSpeedup = 5;
  const bool on_amx = work.on_amx();
  const double lanes = static_cast<double>(panel) / 16 * (on_amx ? kAmxSpeedup : 1);
  // In taller slabs the sums leave the L3 cache between blocks of k (on the matrix unit the L2 cache, since they are
  // loaded and stored so fast), and in wider slabs panels of columns leave the L2 cache. The latter costs time where
  // two panels are multiplied at once (Intel).
  const std::int64_t depth = packed_depth(work);
  std::int64_t max_height = 2048, max_width = 1024;
  if (on_amx)
    max_height = max_width = 512;
  else if (work.two_panels(std::max(work.m, work.n)))
    max_width = std::min(max_width, (std::int64_t{1} << 18) / depth);
  const std::int64_t strip = on_amx ? kAmxStripRows : 12;
  constexpr double kUneven = 0.03;  // per item: smaller items balance cores of unequal speed
  std::map<std::string, std::int64_t> best_params;
  double best = 0;
  for (const bool swapped : {false, true}) {
    const std::int64_t rows = swapped ? work.n : work.m, columns = swapped ? work.m : work.n;
    const bool left_in_rows = swapped ? work.trans_b : !work.trans_a;
    const bool right_in_rows = swapped ? work.trans_a : !work.trans_b;
    const bool copied =
        packs_left(work.bf16_pairs() ? work.k / 2 : work.k, 1, on_amx, work.two_panels(columns));
    const double left = lanes * (!left_in_rows ? kTransposed : copied ? kRowsCopied : kInPlace);
    const double right = lanes * (right_in_rows ? kPackedWhileMultiplying : kTransposed);
    const double transpose = swapped ? lanes * kTransposed / std::max(1, work.k) : 0;
    for (const std::int64_t tile_right : even_cuts(columns, max_width, panel, 64, 16 * cores))
      for (const std::int64_t tile_left : even_cuts(rows, max_height, strip, 2 * strip, 16 * cores)) {
        const std::int64_t items = work.g * ceil_div(rows, tile_left) * ceil_div(columns, tile_right);
        const auto width = static_cast<double>(round_up(std::min(tile_right, columns), panel));
        const auto height = static_cast<double>(tile_left);
        const double item = width * height * (1 + transpose) + right * width + left * height;
        // Rounded up, since some cores are idle in the last round.
        const double time =
            item * (static_cast<double>(ceil_div(items, cores)) + (cores > 1 ? kUneven : 0.0));
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
  constexpr std::int64_t kMaxPanel = 144, kStandardPanel = 96;
  if (rows <= kMaxPanel) return rows;
  if (micro_tile().columns <= 16) return kStandardPanel;
  return round_up(ceil_div(rows, ceil_div(rows, kMaxPanel)), micro_tile().rows);
}

std::int64_t packed_panel(const MatmulWork& work, std::int64_t rows) {
  constexpr std::int64_t kMaxAmxPanel = 256;
  if (!work.on_amx()) return packed_panel(rows);
  return rows <= kMaxAmxPanel ? rows : round_up(ceil_div(rows, ceil_div(rows, kMaxAmxPanel)), kAmxStripRows);
}

std::int64_t packed_depth(const MatmulWork& work) {
  const std::int64_t steps = work.bf16_pairs() ? 2 * packed_depth(ceil_div(work.k, 2)) : packed_depth(work.k);
  return work.on_amx() ? round_up(steps, 2 * kAmxTileWords) : steps;
}

std::int64_t packed_depth(std::int64_t k) {
  const std::int64_t max_depth = micro_tile().columns <= 16 ? 384 : 512;
  return std::max<std::int64_t>(1,
                                round_up(ceil_div(k, ceil_div(std::max<std::int64_t>(k, 1), max_depth)), 8));
}

Ops matmul_ops() {
  return {
      {{"matmul_skinny", run_matmul_skinny, Schedule::even},
       {"matmul_rows", run_matmul_skinny},
       {"matmul_packed", run_matmul_packed},
       {"matmul_blas", run_matmul_blas},
       {"matmul_gpu_tile", run_matmul_gpu_tile},
       {"matmul_tpu_stationary", run_matmul_tpu_stationary},
       {"matmul_trainium_psum", run_matmul_trainium_psum},
       {"matmul_naive", run_matmul_naive}},
      {{"matmul",
        {{.name = "skinny",
          .kinds = {ProfileKind::host},
          .about = "few rows: B is read once, without packing, and 16-bit floats are converted in registers",
          .fit = fit_skinny,
          .encode = encode_skinny,
          .low_precision = true,
          .row_exact = true},
         {.name = "packed",
          .kinds = {ProfileKind::host},
          .about =
              "register blocks over packed panels in slabs for every core; the epilogue runs in cache, and "
              "16-bit floats are converted block by block",
          .fit = fit_packed,
          .encode = encode_packed,
          .alternatives = packed_alternatives,
          .low_precision = true},
         {.name = "rows",
          .kinds = {ProfileKind::host},
          .about = "skinny for any number of rows, each of which has the same bits in all of them",
          .fit = fit_rows,
          .encode = encode_rows,
          .low_precision = true,
          .row_exact = true},
         {.name = "blas",
          .kinds = {ProfileKind::host},
          .about = "slabs of C computed by OpenBLAS on one thread each",
          .fit = fit_blas,
          .encode = encode_blas},
         {.name = "gpu_tile",
          .kinds = {ProfileKind::gpu},
          .about = "one workgroup per tile of C, slabs of A and B staged through shared memory",
          .fit = fit_gpu_tile,
          .encode = encode_gpu_tile},
         {.name = "tpu_stationary",
          .kinds = {ProfileKind::tpu},
          .about = "weight tiles stay in the matrix unit while long panels of rows stream past",
          .fit = fit_tpu_stationary,
          .encode = encode_tpu_stationary},
         {.name = "trainium_psum",
          .kinds = {ProfileKind::trainium},
          .about = "k on the partitions, moving tiles accumulated in PSUM banks",
          .fit = fit_trainium_psum,
          .encode = encode_trainium_psum},
         {.name = "naive",
          .about = "one pass over k per chunk of a row; the baseline of the other variants",
          .fit = fit_naive,
          .encode = encode_naive}}}}};
}

}  // namespace meshloom::backends::cpu
