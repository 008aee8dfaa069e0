// The kernels of host_tile and gpu_tile: the visible tiles follow from the mask by arithmetic.
#include <algorithm>

#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_streamed.h"

namespace meshloom::backends::cpu {

// One work item: one query tile of one head. With causal masks the tiles that see the most keys come first.
void run_flash_tiles(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  FlashMasks masks(work, args);
  ForwardTile tile(work, args, masks);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t q0 = (work.tiles_q() - 1 - item % work.tiles_q()) * work.tile_q,
                       head = item / work.tiles_q();
    tile.begin(head / work.h, head % work.h, q0);
    masks.each_key_tile(q0, 0, work.t, [&](std::int64_t k0, bool masked) { tile.key_tile(k0, masked); });
    tile.finish();
  }
}

// One work item: dq of one query tile of one head.
void run_flash_tiles_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  FlashMasks masks(work, args);
  BackwardTile tile(work, args, masks, 0);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t q0 = item % work.tiles_q() * work.tile_q, head = item / work.tiles_q();
    tile.query_tile(head / work.h, head % work.h, q0, false, true);
    masks.each_key_tile(q0, 0, work.t, [&](std::int64_t k0, bool masked) {
      tile.key_tile(k0, masked);
      tile.add_dq();
    });
    tile.finish_dq();
  }
}

// One work item: dk and dv of `span` key tiles of one kv head, summed over its query heads and their tiles in
// order.
void run_flash_tiles_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const std::int64_t part_keys = std::int64_t{work.span} * work.tile_k, parts = ceil_div(work.t, part_keys);
  FlashMasks masks(work, args);
  BackwardTile tile(work, args, masks, part_keys);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t first = item % parts * part_keys,
                       last = std::min<std::int64_t>(work.t, first + part_keys);
    const std::int64_t b = item / parts / work.kv, kv = item / parts % work.kv;
    tile.begin_keys(last - first);
    for (std::int64_t h = kv * work.group(); h < (kv + 1) * work.group(); ++h) {
      masks.head(b, h);
      for (std::int64_t q0 = 0; q0 < work.s; q0 += work.tile_q) {
        bool loaded = false;
        masks.each_key_tile(q0, first, last, [&](std::int64_t k0, bool masked) {
          if (!loaded) tile.query_tile(b, h, q0, true, false);
          loaded = true;
          tile.key_tile(k0, masked);
          tile.add_dkv(k0 - first);
        });
      }
    }
    tile.finish_keys(b, kv, first, last - first);
  }
}

// One work item: one query tile of one bias. Batch rows and heads that share the bias are summed in order.
void run_flash_tiles_dbias(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  FlashMasks masks(work, args);
  BackwardTile tile(work, args, masks, 0);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t q0 = item % work.tiles_q() * work.tile_q, plane = item / work.tiles_q();
    float* into = args.at(flash::dbias) + (plane * work.s + q0) * work.t;
    std::fill_n(into, std::min<std::int64_t>(work.tile_q, work.s - q0) * work.t, 0.0f);
    for (std::int64_t b = 0; b < work.b; ++b)
      for (std::int64_t h = 0; h < work.h; ++h) {
        if (work.bias_plane(b, h) != plane) continue;
        tile.query_tile(b, h, q0, false, false);
        masks.each_key_tile(q0, 0, work.t, [&](std::int64_t k0, bool masked) {
          tile.key_tile(k0, masked, true);
          tile.add_dbias(into + k0);
        });
      }
  }
}

namespace {

// dq of one query head, and its part of dk and dv, added to the tile's accumulators; the scores are computed once for
// all three.
void fused_head(const FlashWork& work, const FlashMasks& masks, BackwardTile& tile, std::int64_t b,
                std::int64_t h) {
  for (std::int64_t q0 = 0; q0 < work.s; q0 += work.tile_q) {
    tile.query_tile(b, h, q0, true, true);
    masks.each_key_tile(q0, 0, work.t, [&](std::int64_t k0, bool masked) {
      tile.key_tile(k0, masked);
      tile.add_dq();
      tile.add_dkv(k0);
    });
    tile.finish_dq();
  }
}

}  // namespace

// One work item: dq, dk and dv of one kv head and its query heads.
void run_flash_tiles_fused(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  FlashMasks masks(work, args);
  BackwardTile tile(work, args, masks, work.t);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t b = item / work.kv, kv = item % work.kv;
    tile.begin_keys(work.t);
    for (std::int64_t h = kv * work.group(); h < (kv + 1) * work.group(); ++h)
      fused_head(work, masks, tile, b, h);
    tile.finish_keys(b, kv, 0, work.t);
  }
}

// One work item: dq of one query head and its part of dk and dv.
void run_flash_tiles_heads(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  FlashMasks masks(work, args);
  BackwardTile tile(work, args, masks, work.t);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t b = item / work.h, h = item % work.h;
    tile.begin_keys(work.t);
    fused_head(work, masks, tile, b, h);
    tile.finish_head(b, h, work.t);
  }
}

// One work item: dk and dv of one position, summed over the parts of the query heads in order.
void run_flash_group_sums(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const std::int64_t group = work.group(), sizes[2] = {work.d, work.dv};
  const float* partial = args.at(static_cast<std::size_t>(work.partial));
  const float* parts[2] = {partial, partial + flash_partial_dk(work)};
  constexpr flash::Binding kSums[2] = {flash::dk, flash::dv};
  const FlashTensors tensors(work, args);
  const auto scratch = thread_scratch({std::max(work.d, work.dv)});
  for (std::int64_t row = std::int64_t{begin} * work.kv; row < std::int64_t{end} * work.kv; ++row)
    for (int which = 0; which < 2; ++which) {
      const std::int64_t d = sizes[which];
      const float* from = parts[which] + row * group * d;
      float* to = scratch[0];
      std::copy_n(from, d, to);
      for (std::int64_t g = 1; g < group; ++g)
        for (std::int64_t e = 0; e < d; ++e) to[e] += from[g * d + e];
      tensors.store(kSums[which], row * d, to, d, 1.0f);
    }
}

}  // namespace meshloom::backends::cpu
