// What every attention kernel of the CPU gets to know.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "backends/cpu/kernels/matmul_work.h"
#include "kernels/flash_attention/flash_attention.h"

namespace meshloom::backends::cpu {

struct FlashWork {
  std::int32_t b, s, t, h, kv, d;
  std::int32_t causal;
  float scale;
  std::int32_t tile_q, tile_k;  // queries and keys of a tile
  std::int32_t span;            // key tiles (dk, dv) of one work item

  std::int64_t tiles_q() const { return div_up(s, tile_q); }
  std::int64_t tiles_k() const { return div_up(t, tile_k); }
  std::int64_t group() const { return h / kv; }
  // Keys that a query sees beyond those of its own index.
  std::int64_t ahead() const { return std::int64_t{t} - s; }
  // No query of [q, q_end) sees a key from k on.
  bool empty(std::int64_t q_end, std::int64_t k) const { return causal && k > q_end - 1 + ahead(); }
  // Every query from q on sees every key before k_end.
  bool full(std::int64_t q, std::int64_t k_end) const { return !causal || k_end - 1 <= q + ahead(); }
};
FlashWork flash_work(const kernels::CallView& call);
// The same with "tile_q", "tile_k", "span" taken from the choice's parameters where there.
FlashWork flash_work(const kernels::EncodeArgs& args);

// "" when this family can compute the call, else the reason.
std::string flash_refusal(const kernels::CallView& call);

// Rows of q, o, do, dq: (b, s, h, d); of k, v, dk, dv: (b, t, kv, d); lse: (b, h, s). Bindings of
// flash_attention are q, k, v, o, lse; of flash_attention_grad q, k, v, o, lse, do, dq, dk, dv.
struct FlashLayout {
  std::int64_t q_row, k_row;  // floats between one position and the next
  explicit FlashLayout(const FlashWork& w)
      : q_row(std::int64_t{w.h} * w.d), k_row(std::int64_t{w.kv} * w.d), w_(w) {}
  std::int64_t query(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return ((b * w_.s + i) * w_.h + h) * w_.d;
  }
  std::int64_t key(std::int64_t b, std::int64_t j, std::int64_t kv) const {
    return ((b * w_.t + j) * w_.kv + kv) * w_.d;
  }
  std::int64_t stat(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return (b * w_.h + h) * w_.s + i;
  }

 private:
  const FlashWork& w_;
};
namespace flash {
enum Binding : std::size_t { q, k, v, o, lse, d_o, dq, dk, dv, partial };
}  // namespace flash
// With split heads: each query head's share of dk, then of dv, (b, t, h, d) both; the workspace.
inline std::int64_t flash_partial_floats(const FlashWork& work) {
  return std::int64_t{work.b} * work.t * work.h * work.d;
}

// The kernels of flash_attention_*.cpp; tables are in flash_attention_variants.cpp.
void run_flash_naive(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_naive_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_naive_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles_fused(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_tiles_heads(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_group_sums(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_splash(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_splash_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_splash_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_partition(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_partition_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_flash_partition_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);

}  // namespace meshloom::backends::cpu
