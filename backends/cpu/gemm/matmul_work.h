// What every matmul kernel of the CPU gets to know, and how its dispatch is recorded.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/cpu/device/kernel.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "hal/math.h"
#include "kernels/core/variant.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::backends::cpu {
using hal::ceil_div;
using hal::round_up;

// A plain struct of 32-bit fields travels as the dispatch's constants.
template <typename T>
std::vector<hal::Word> to_words(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(hal::Word) == 0);
  std::vector<hal::Word> words(sizeof(T) / sizeof(hal::Word));
  std::memcpy(words.data(), &value, sizeof(T));
  return words;
}
template <typename T>
T from_words(const hal::Word* words) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(hal::Word) == 0);
  T value;
  std::memcpy(&value, words, sizeof(T));
  return value;
}

// Records one dispatch over `items` work items. Bindings: the inputs, then the outputs, then the workspace if
// any.
void record(const kernels::EncodeArgs& args, const std::string& kernel, std::array<std::uint32_t, 3> items,
            const std::vector<hal::Word>& constants, hal::Access workspace = hal::Access::read_write);

struct MatmulWork {
  std::int32_t g, m, n, k;
  std::int32_t trans_a, trans_b, has_bias, has_residual;
  kernels::Activation activation;
  hal::DType dtype, result;  // of A and B, of C and the residual
  std::uint8_t nf4;  // B is of four-bit weights (kernels/nf4_matmul), rows of K with trans_b, else of N: 1,
                     // or 2 where their scales are quantised too
  std::int32_t tile_m, tile_n, tile_k;  // meaning: the variant's
  std::int32_t panel, swapped;          // likewise
  std::int32_t block;                   // of nf4: values that share a scale

  std::int64_t tiles_m() const { return ceil_div(m, tile_m); }
  std::int64_t tiles_n() const { return ceil_div(n, tile_n); }
  // Are A and B of bf16 numbers that the inner loop takes as pairs?
  bool paired() const { return dtype == hal::DType::bf16 && nf4 == 0 && multiplies_bf16_pairs(); }
  bool in_tiles() const { return paired() && bf16_pairs_in_tiles(); }
  // Does a right side of `columns` columns go through the registers two panels at a time?
  bool by_two_panels(std::int64_t columns) const { return !paired() && takes_panels_in_pairs(columns); }
};
MatmulWork matmul_work(const kernels::CallView& call);
// "tile_m", "tile_n", "tile_k", "panel" and "swapped" of the choice's parameters, where there.
void take_tiles(const kernels::Choice& choice, MatmulWork& work);
// The call's work with them.
MatmulWork matmul_work(const kernels::EncodeArgs& args);

// The matrices of one batch index. Element (i, k) of op(A) is a[i * a_row + k * a_col].
// Of f32; `bias` of any call.
struct MatmulOperands {
  const float *a, *b, *bias, *residual;  // bias and residual may be null
  const void* scales;                    // of nf4
  const float* steps;                    // of its scales; may be null
  float* c;                              // (m, n), dense
  std::int64_t a_row, a_col, b_row, b_col;
};
MatmulOperands matmul_operands(const MatmulWork& work, const KernelArgs& args, std::int64_t batch);

// Does the packed kernel copy its left side (element (i, k) at i * row + k * col) before reading it? Rows a
// multiple of 2 KiB apart crowd into a few sets of the first-level cache; the matrix unit, which reads 32
// rows at a time, is slowed down by less, and six rows at a time (`pairs` of panels) find room.
constexpr bool packs_left(std::int64_t row, std::int64_t col, bool tiles, bool pairs) {
  return col != 1 || (!pairs && row % (tiles ? 128 : 512) == 0);
}
// Its tile_k: blocks of k of about equal depth; deep, so that sums are seldom fetched again, but a panel of columns stays
// near the processor.
std::int64_t packed_depth(std::int64_t k);
std::int64_t packed_depth(const MatmulWork& work);
// Its panel: rows whose block of k stays in the second-level cache, beside the panels of columns; a slab of few rows in one
// piece, so that no panel of columns is needed twice.
std::int64_t packed_panel(std::int64_t rows);
std::int64_t packed_panel(const MatmulWork& work, std::int64_t rows);
constexpr std::int64_t kTurned = 32;  // rows of C that it turns at a time when its sides are swapped

// Slabs that keep every core busy at the least packing: what the packed kernel takes.
kernels::Fit fit_packed_slabs(const MatmulWork& work, const hal::DeviceInfo& target);

// "" when this family can compute the call, else the reason; `narrow`: 16-bit floats too.
std::string matmul_refusal(const kernels::CallView& call, bool narrow = false);

// The kernels of matmul_*.cpp, one work item each; tables are in matmul_variants.cpp.
void run_matmul_naive(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_blas(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_packed(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_nf4_matmul_few_rows(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_skinny(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_gpu_tile(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_tpu_stationary(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_trainium_psum(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);

}  // namespace meshloom::backends::cpu
