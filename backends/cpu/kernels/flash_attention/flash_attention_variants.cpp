// The attention variants of the CPU: which calls they take, with which tiles, and how the work is split.
#include <string>
#include <utility>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_splash.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_vector.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_work.h"
#include "backends/cpu/kernels/ops.h"

namespace meshloom::backends::cpu {
namespace {

using hal::ProfileKind;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

Fit fit_naive(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = flash_refusal(call); !no.empty()) return Fit::no(std::move(no));
  return Fit::yes({{"tile_q", 1}, {"tile_k", 1}});
}

void encode_naive(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  record_flash(args, "flash_attention_naive", grid(work.s, work.h, work.b), to_words(work));
}

// Every backward pass ends with this.
void encode_sinks(const EncodeArgs& args, const FlashWork& work) {
  if (work.dsink == 0) return;
  args.commands.barrier();
  record_flash(args, "flash_attention_sinks", grid(work.h, 1, 1), to_words(work));
}

void encode_naive_grad(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  record_flash(args, "flash_attention_naive_dq", grid(work.s, work.h, work.b), to_words(work));
  args.commands.barrier();
  record_flash(args, "flash_attention_naive_dkv", grid(work.t, work.kv, work.b), to_words(work));
  encode_sinks(args, work);
}

void encode_tiles(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  record_flash(args, "flash_attention_tiles", grid(work.tiles_q(), work.h, work.b), to_words(work));
}

// Two passes, each of which recomputes the scores, so that no two work items add to the same gradient.
void encode_tiles_grad(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  record_flash(args, "flash_attention_tiles_dq", grid(work.tiles_q(), work.h, work.b), to_words(work));
  args.commands.barrier();
  record_flash(args, "flash_attention_tiles_dkv", grid(ceil_div(work.tiles_k(), work.span), work.kv, work.b),
               to_words(work));
  encode_sinks(args, work);
}

// Positions of a tile of scores that stays in the L1 and L2 caches, for f32 and for bf16 pairs.
constexpr std::int64_t kMaxTileF32 = kKeyTile, kMaxTileBf16 = 128;
// The positions cut evenly into tiles of at most max_tile.
std::int64_t host_tile(std::int64_t positions, std::int64_t max_tile) {
  return round_up(ceil_div(positions, ceil_div(positions, max_tile)), micro_tile().columns);
}

// Whole tiles of keys, and what is left: a query's bits do not depend on how many keys come behind those that it sees.
Fit fit_host(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = flash_refusal(call, true); !no.empty()) return Fit::no(std::move(no));
  const FlashWork work = flash_work(call);
  const std::int64_t max_tile = work.bf16_pairs ? kMaxTileBf16 : kMaxTileF32;
  return Fit::yes({{"tile_q", host_tile(work.s, work.bf16_pairs ? kMaxTileBf16 : 192)},
                   {"tile_k", std::min(max_tile, round_up(work.t, micro_tile().columns))}});
}

// For few queries: the tile has a row per query and head of the group, and more rows are faster in other variants.
Fit fit_decode(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = flash_refusal_without_dropout(call); !no.empty()) return Fit::no(std::move(no));
  const FlashWork work = flash_work(call);
  if (work.bitmask_heads != 0)
    return Fit::no("the heads of a group share one tile here, so they cannot have a bitmask each");
  constexpr std::int64_t kQueries = 8, kRows = 32, kTile = 128;
  if (work.s > kQueries || work.s * work.group() > kRows)
    return Fit::no("takes at most " + std::to_string(kQueries) + " queries and " + std::to_string(kRows) +
                   " rows per kv head, not " + std::to_string(work.s) + " and " +
                   std::to_string(work.s * work.group()));
  // The split depends on the shape alone, so that the number of threads does not change the result.
  constexpr std::int64_t kItems = 16;    // enough to keep the cores busy
  constexpr std::int64_t kMinTiles = 2;  // fewer are not worth a work item
  const std::int64_t tiles = ceil_div(work.t, kTile), heads = std::int64_t{work.b} * work.kv;
  const std::int64_t parts =
      std::clamp<std::int64_t>(kItems / heads, 1, std::max<std::int64_t>(1, tiles / kMinTiles));
  const std::int64_t span = ceil_div(tiles, parts), used = ceil_div(tiles, span);
  return Fit::yes({{"tile_q", work.s}, {"tile_k", kTile}, {"span", span}},
                  used > 1 ? std::int64_t{work.b} * work.h * work.s * used * (work.dv + 2) * 4 : 0);
}

void encode_decode(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  record_flash(args, "flash_attention_decode", grid(work.key_parts(), work.kv, work.b), to_words(work),
               hal::Access::write);
  if (work.key_parts() == 1) return;
  args.commands.barrier();
  record_flash(args, "flash_attention_decode_sums", grid(work.s, work.h, work.b), to_words(work),
               hal::Access::read);
}

// The split depends on the shape alone, so that the number of threads does not change the result.
Fit fit_host_grad(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = flash_refusal(call, true); !no.empty()) return Fit::no(std::move(no));
  const FlashWork work = flash_work(call);
  constexpr std::int64_t kEnough = 8;  // heads that keep the cores busy
  const bool fused = std::int64_t{work.b} * work.kv >= kEnough;
  // Too few kv heads but enough query heads: each query head computes its part of dk and dv.
  const bool split = !fused && std::int64_t{work.b} * work.h >= kEnough;
  const std::int64_t max_tile = work.bf16_pairs ? kMaxTileBf16 : kMaxTileF32,
                     tile_k = host_tile(work.t, max_tile),
                     span = std::clamp<std::int64_t>(ceil_div(work.t, tile_k) / 4, 1, 4);
  return Fit::yes({{"tile_q", host_tile(work.s, max_tile)},
                   {"tile_k", tile_k},
                   {"span", span},
                   {"fused", fused},
                   {"split", split}},
                  split ? (flash_partial_dk(work) + flash_partial_dv(work)) * 4 : 0);
}

void encode_host_grad(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  if (args.choice.params.at("split") != 0) {
    record_flash(args, "flash_attention_tiles_heads", grid(work.h, work.b, 1), to_words(work),
                 hal::Access::write);
    args.commands.barrier();
    record_flash(args, "flash_attention_group_sums", grid(work.t, work.b, 1), to_words(work),
                 hal::Access::read);
    return encode_sinks(args, work);
  }
  if (args.choice.params.at("fused") == 0) return encode_tiles_grad(args);
  record_flash(args, "flash_attention_tiles_fused", grid(work.kv, work.b, 1), to_words(work));
  encode_sinks(args, work);
}

// One pass over the scores per query tile of a bias, for all batch rows and heads that share it.
void encode_bias_grad(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  const kernels::Shape& bias = args.call.outputs[0].shape;
  record_flash(args, "flash_attention_tiles_dbias", grid(work.tiles_q(), bias[0] * bias[1], 1),
               to_words(work));
}

// The largest tiles whose operands and scores fit a workgroup's shared memory; one invocation per query.
Fit fit_gpu(const CallView& call, const hal::DeviceInfo& target, std::int64_t sides) {
  if (std::string no = flash_refusal(call); !no.empty()) return Fit::no(std::move(no));
  const hal::Profile& profile = target.profile;
  const FlashWork work = flash_work(call);
  const std::int64_t d = std::max(work.d, work.dv);
  const auto bytes = [&](std::int64_t q, std::int64_t k) {
    return 4 * (sides * q * d + 2 * k * d + sides * q * k);
  };
  for (const auto& [q, k] : {std::pair{64, 64}, {64, 32}, {32, 32}, {32, 16}, {16, 16}, {16, 8}, {8, 8}})
    if (bytes(q, k) <= profile.scratch_bytes && (profile.max_workgroup <= 0 || q <= profile.max_workgroup))
      return Fit::yes({{"tile_q", q}, {"tile_k", k}});
  return Fit::no("tiles of 8 queries and 8 keys with head dim " + std::to_string(d) + " need " +
                 std::to_string(bytes(8, 8)) + " bytes of scratch memory; profile " + profile.name + " has " +
                 std::to_string(profile.scratch_bytes));
}
Fit fit_gpu_forward(const CallView& call, const hal::DeviceInfo& target) { return fit_gpu(call, target, 1); }
Fit fit_gpu_grad(const CallView& call, const hal::DeviceInfo& target) { return fit_gpu(call, target, 2); }

// Square blocks, multiples of the matrix unit, as large as the scratchpad and the sequence allow.
Fit fit_splash(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = flash_refusal(call); !no.empty()) return Fit::no(std::move(no));
  const hal::Profile& profile = target.profile;
  const FlashWork work = flash_work(call);
  const std::int64_t unit = profile.matrix_tile.n;
  if (unit <= 0) return Fit::no("profile " + profile.name + " has no matrix unit");
  const std::int64_t features = std::max(work.d, work.dv);
  // The backward pass has four operands, two blocks of scores and three accumulators.
  const auto bytes = [&](std::int64_t block) { return 4 * block * (7 * features + 2 * block); };
  std::int64_t block = unit;
  while (2 * block <= 512 && 2 * block <= std::max(work.s, work.t) &&
         bytes(2 * block) <= profile.scratch_bytes)
    block *= 2;
  if (bytes(block) > profile.scratch_bytes)
    return Fit::no("blocks of " + std::to_string(block) + " with head dim " + std::to_string(features) +
                   " need " + std::to_string(bytes(block)) + " bytes of scratchpad; profile " + profile.name +
                   " has " + std::to_string(profile.scratch_bytes));
  if (ceil_div(std::max(work.s, work.t), block) > kSplashMaxBlocks)
    return Fit::no("a schedule holds " + std::to_string(kSplashMaxBlocks) + " blocks of " +
                   std::to_string(block) + " positions along an axis, not " +
                   std::to_string(std::max(work.s, work.t)) + " positions");
  return Fit::yes({{"tile_q", block}, {"tile_k", block}});
}

void encode_splash(const EncodeArgs& args, const char* kernel, const FlashWork& work,
                   const std::vector<std::vector<SplashRun>>& rows, std::int64_t heads) {
  bool first = true;
  for (const SplashPart& part : splash_parts(work, rows, args.device.info().limits.max_constant_words)) {
    if (!first) args.commands.barrier();
    first = false;
    record_flash(args, kernel, grid(part.count, heads, work.b), part.words);
  }
}

void encode_splash_forward(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  encode_splash(args, "flash_attention_splash", work, splash_rows(work), work.h);
}

void encode_splash_grad(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  encode_splash(args, "flash_attention_splash_dq", work, splash_rows(work), work.h);
  args.commands.barrier();
  encode_splash(args, "flash_attention_splash_dkv", work, splash_columns(work), work.kv);
  encode_sinks(args, work);
}

// Queries on the partitions, as many keys as a PSUM bank holds scores per partition.
Fit fit_partition(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = flash_refusal_without_dropout(call); !no.empty()) return Fit::no(std::move(no));
  const hal::Profile& profile = target.profile;
  const FlashWork work = flash_work(call);
  const std::int64_t partitions = profile.partitions;
  if (partitions <= 0 || profile.accumulator_banks <= 0 || profile.accumulator_bytes <= 0)
    return Fit::no("profile " + profile.name + " has no partitions or no PSUM banks");
  const std::int64_t features = std::max(work.d, work.dv);
  const std::int64_t bank = profile.accumulator_bytes / partitions / profile.accumulator_banks / 4;
  if (bank < features || bank < 16)
    return Fit::no("a PSUM bank must hold the output's " + std::to_string(features) +
                   " features and at least 16 scores per partition; profile " + profile.name + " holds " +
                   std::to_string(bank));
  const std::int64_t tile_k = std::min(bank, round_up(work.t, 16));
  // The backward pass has q, do, k, v, scores, products, a transposed block and accumulators.
  const std::int64_t bytes =
      4 * (partitions * (3 * features + partitions) + tile_k * 4 * features + 2 * partitions * tile_k);
  if (bytes > profile.scratch_bytes)
    return Fit::no("tiles of " + std::to_string(partitions) + " queries and " + std::to_string(tile_k) +
                   " keys with head dim " + std::to_string(features) + " need " + std::to_string(bytes) +
                   " bytes of SBUF; profile " + profile.name + " has " +
                   std::to_string(profile.scratch_bytes));
  return Fit::yes({{"tile_q", partitions}, {"tile_k", tile_k}, {"span", partitions}});
}

void encode_partition(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  record_flash(args, "flash_attention_partition", grid(work.tiles_q(), work.h, work.b), to_words(work));
}

void encode_partition_grad(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  record_flash(args, "flash_attention_partition_dq", grid(work.tiles_q(), work.h, work.b), to_words(work));
  args.commands.barrier();
  record_flash(args, "flash_attention_partition_dkv", grid(work.tiles_k(), work.kv, work.b), to_words(work));
  encode_sinks(args, work);
}

}  // namespace

Ops flash_attention_ops() {
  const std::string host_tile =
                        "tiles of scores in cache, register-blocked products, bf16 on the matrix unit",
                    gpu_tile = "one workgroup per query tile, keys streamed through shared memory",
                    splash = "large blocks in a schedule of the mask, which skips empty blocks",
                    partition = "features, then keys on the partitions, one PSUM bank of scores at a time",
                    naive = "one query at a time with an online softmax; the baseline of the other variants";
  return {{{"flash_attention_naive", run_flash_naive},
           {"flash_attention_naive_dq", run_flash_naive_dq},
           {"flash_attention_naive_dkv", run_flash_naive_dkv},
           {"flash_attention_tiles", run_flash_tiles},
           {"flash_attention_tiles_dq", run_flash_tiles_dq},
           {"flash_attention_tiles_dkv", run_flash_tiles_dkv},
           {"flash_attention_tiles_dbias", run_flash_tiles_dbias},
           {"flash_attention_tiles_fused", run_flash_tiles_fused},
           {"flash_attention_tiles_heads", run_flash_tiles_heads},
           {"flash_attention_group_sums", run_flash_group_sums},
           {"flash_attention_decode", run_flash_decode},
           {"flash_attention_decode_sums", run_flash_decode_sums},
           {"flash_attention_sinks", run_flash_sinks},
           {"flash_attention_splash", run_flash_splash},
           {"flash_attention_splash_dq", run_flash_splash_dq},
           {"flash_attention_splash_dkv", run_flash_splash_dkv},
           {"flash_attention_partition", run_flash_partition},
           {"flash_attention_partition_dq", run_flash_partition_dq},
           {"flash_attention_partition_dkv", run_flash_partition_dkv}},
          {{"flash_attention",
            {{.name = "host_decode",
              .kinds = {ProfileKind::host},
              .about = "few queries: the heads of a group read the keys once, and few heads split them",
              .fit = fit_decode,
              .encode = encode_decode},
             {.name = "host_tile",
              .kinds = {ProfileKind::host},
              .about = host_tile,
              .fit = fit_host,
              .encode = encode_tiles,
              .low_precision = true,
              .row_exact = true},
             {.name = "gpu_tile",
              .kinds = {ProfileKind::gpu},
              .about = gpu_tile,
              .fit = fit_gpu_forward,
              .encode = encode_tiles},
             {.name = "tpu_splash",
              .kinds = {ProfileKind::tpu},
              .about = splash,
              .fit = fit_splash,
              .encode = encode_splash_forward},
             {.name = "trainium_partition",
              .kinds = {ProfileKind::trainium},
              .about = partition,
              .fit = fit_partition,
              .encode = encode_partition},
             {.name = "naive", .about = naive, .fit = fit_naive, .encode = encode_naive}}},
           {"flash_attention_grad",
            {{.name = "host_tile",
              .kinds = {ProfileKind::host},
              .about = host_tile,
              .fit = fit_host_grad,
              .encode = encode_host_grad,
              .low_precision = true},
             {.name = "gpu_tile",
              .kinds = {ProfileKind::gpu},
              .about = gpu_tile,
              .fit = fit_gpu_grad,
              .encode = encode_tiles_grad},
             {.name = "tpu_splash",
              .kinds = {ProfileKind::tpu},
              .about = splash,
              .fit = fit_splash,
              .encode = encode_splash_grad},
             {.name = "trainium_partition",
              .kinds = {ProfileKind::trainium},
              .about = partition,
              .fit = fit_partition,
              .encode = encode_partition_grad},
             {.name = "naive", .about = naive, .fit = fit_naive, .encode = encode_naive_grad}}},
           {"flash_attention_bias_grad",
            {{.name = "tiles",
              .about = "recomputes tiles of scores and sums over the batch rows and heads that share a bias",
              .fit = fit_host,
              .encode = encode_bias_grad}}}}};
}

}  // namespace meshloom::backends::cpu
