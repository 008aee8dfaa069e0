// The parameters of every attention kernel of the CPU, and the recording of its dispatches.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/gemm/matmul_work.h"
#include "kernels/flash_attention/dropout.h"

namespace meshloom::backends::cpu {

struct FlashWork {
  std::int32_t b, s, t, h, kv, d, dv;
  std::int32_t left, right;     // kUnlimitedSide: unlimited
  float scale, soft_cap;        // 0: none
  std::int32_t tile_q, tile_k;  // queries and keys of a tile
  std::int32_t span;            // key tiles (dk, dv) per work item
  // Bindings of the optional tensors, 0 where there is none; k_segments follows q_segments.
  std::int32_t q_segments, prefix, query_offset, sink, slopes, rng_state, bias, attention_bitmask, dsink,
      partial;
  // Planes (s x t biases, s rows of bits) between one batch row, or head, and the next; 0: they share one.
  std::int32_t bias_rows, bias_heads, bitmask_rows, bitmask_heads;
  kernels::AttentionDropout dropout;  // without the words of rng_state
  std::int32_t bf16_pairs;  // q, k, v, o and their gradients are bf16 and are multiplied as bf16 pairs

  static constexpr std::int32_t kUnlimitedSide = INT32_MIN;

  std::int64_t tiles_q() const { return ceil_div(s, tile_q); }
  std::int64_t tiles_k() const { return ceil_div(t, tile_k); }
  std::int64_t group() const { return h / kv; }
  // Work items that share the keys of one kv head, `span` tiles each.
  std::int64_t key_parts() const { return ceil_div(tiles_k(), span); }
  // The mask without what tensors add to it.
  kernels::AttentionMask mask() const {
    kernels::AttentionMask fixed{.s = s, .t = t, .offset = std::int64_t{t} - s};
    if (left != kUnlimitedSide) fixed.left = left;
    if (right != kUnlimitedSide) fixed.right = right;
    return fixed;
  }
  std::int64_t bias_plane(std::int64_t row, std::int64_t head) const {
    return row * bias_rows + head * bias_heads;
  }
  std::int64_t bitmask_plane(std::int64_t row, std::int64_t head) const {
    return row * bitmask_rows + head * bitmask_heads;
  }
  // True where tensors show keys that mask() alone does not.
  bool tensors_extend_mask() const { return prefix != 0 || query_offset != 0; }
};
FlashWork flash_work(const kernels::CallView& call);
// With tile_q, tile_k and span from those of the choice's parameters that exist, and with the bindings.
FlashWork flash_work(const kernels::EncodeArgs& args);

// Records one dispatch; `constants` begin with the words of a FlashWork. Bindings: those of flash::Binding that the
// op has, then the optional ones.
void record_flash(const kernels::EncodeArgs& args, const std::string& kernel,
                  std::array<std::uint32_t, 3> items, const std::vector<hal::Word>& constants,
                  hal::Access workspace = hal::Access::read_write);

// The tensors of one batch row and head; null where the call has none.
const float* flash_bias(const FlashWork& work, const KernelArgs& args, std::int64_t b, std::int64_t h);
const std::uint32_t* flash_bits(const FlashWork& work, const KernelArgs& args, std::int64_t b,
                                std::int64_t h);

// The reason why no kernel of this family computes the call, or "". With `bf16_pairs`, bf16 is accepted where it is
// multiplied as FlashWork::bf16_pairs says.
std::string flash_refusal(const kernels::CallView& call, bool bf16_pairs = false);
// For kernels without dropout.
std::string flash_refusal_without_dropout(const kernels::CallView& call);

// The dropout of a call with an rng_state, read when the kernel runs.
kernels::AttentionDropout flash_dropout(const FlashWork& work, const KernelArgs& args);
// The factors of dropout, (keys x queries) with rows `stride` floats apart, for `queries` queries from `query` on and
// `keys` keys from `key` on.
void dropout_columns(const kernels::AttentionDropout& dropout, std::int64_t b, std::int64_t h,
                     std::int64_t query, std::int64_t queries, std::int64_t key, std::int64_t keys,
                     float* factors, std::int64_t stride);

// Rows of q, dq: (b, s, h, d); of o, do: (b, s, h, dv); of k, dk: (b, t, kv, d); of v, dv: (b, t, kv, dv);
// lse: (b, h, s).
struct FlashLayout {
  std::int64_t q_row, o_row, k_row, v_row;  // floats from one position to the next
  explicit FlashLayout(const FlashWork& w)
      : q_row(std::int64_t{w.h} * w.d),
        o_row(std::int64_t{w.h} * w.dv),
        k_row(std::int64_t{w.kv} * w.d),
        v_row(std::int64_t{w.kv} * w.dv),
        w_(w) {}
  std::int64_t query(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return (b * w_.s + i) * q_row + h * w_.d;
  }
  std::int64_t output(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return (b * w_.s + i) * o_row + h * w_.dv;
  }
  std::int64_t key(std::int64_t b, std::int64_t j, std::int64_t kv) const {
    return (b * w_.t + j) * k_row + kv * w_.d;
  }
  std::int64_t value(std::int64_t b, std::int64_t j, std::int64_t kv) const {
    return (b * w_.t + j) * v_row + kv * w_.dv;
  }
  std::int64_t stat(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return (b * w_.h + h) * w_.s + i;
  }

 private:
  const FlashWork& w_;
};
namespace flash {
enum Binding : std::size_t { q, k, v, o, lse, d_o, dq, dk, dv, dbias = dq };
}  // namespace flash
// With split heads the workspace holds each query head's part of dk (b, t, h, d), then of dv (b, t, h, dv).
inline std::int64_t flash_partial_dk(const FlashWork& work) {
  return std::int64_t{work.b} * work.t * work.h * work.d;
}
inline std::int64_t flash_partial_dv(const FlashWork& work) {
  return std::int64_t{work.b} * work.t * work.h * work.dv;
}

// The kernels of flash_attention_*.cpp; flash_attention_variants.cpp holds the tables.
void run_flash_naive(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_naive_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_naive_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles_dbias(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles_fused(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles_heads(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_group_sums(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_decode(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_decode_sums(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_sinks(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_splash(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_splash_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_splash_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_partition(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_partition_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_partition_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);

}  // namespace meshloom::backends::cpu
