// The parameters of every matmul kernel of the CPU, and the recording of its dispatch.
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

// A plain struct of 32-bit fields is passed as the dispatch's constants.
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

// Records one dispatch over `items` work items. Bindings: the inputs, the outputs, then the workspace if there is one.
void record(const kernels::EncodeArgs& args, const std::string& kernel, std::array<std::uint32_t, 3> items,
            const std::vector<hal::Word>& constants);

struct MatmulWork {
  std::int32_t g, m, n, k;
  std::int32_t trans_a, trans_b, has_bias, has_residual;
  kernels::Activation activation;
  hal::DType dtype, result;  // of A and B; of C and the residual
  // 0: B is of `dtype`. 1: B is NF4 (kernels/nf4_matmul), in rows of K with trans_b, else of N. 2: the scales of
  // NF4 are quantized too.
  std::uint8_t nf4;
  std::uint8_t
      block_format;  // 0, or B is in blocks of this format (kernels/block_quantized), its FormatId + 1; with trans_b
  std::int32_t tile_m, tile_n, tile_k;  // as the variant defines them
  std::int32_t panel, swapped;          // likewise
  std::int32_t block;                   // NF4: values that share a scale

  std::int64_t tiles_m() const { return ceil_div(m, tile_m); }
  std::int64_t tiles_n() const { return ceil_div(n, tile_n); }
  bool packed_b() const { return nf4 != 0 || block_format != 0; }
  // True where A and B are bf16 and the inner loop reads them as pairs.
  bool bf16_pairs() const { return dtype == hal::DType::bf16 && !packed_b() && supports_bf16_pairs(); }
  bool on_amx() const { return bf16_pairs() && bf16_pairs_on_amx(); }
  // True where the inner loop multiplies two panels at a time for a right side of `columns` columns.
  bool two_panels(std::int64_t columns) const { return !bf16_pairs() && uses_two_panels(columns); }
};
MatmulWork matmul_work(const kernels::CallView& call);
// Sets tile_m, tile_n, tile_k, panel and swapped from those of the choice's parameters that exist.
void set_tiles(const kernels::Choice& choice, MatmulWork& work);
// The call's parameters with the tiles of the choice.
MatmulWork matmul_work(const kernels::EncodeArgs& args);

// The matrices of one batch index, for f32: element (i, k) of op(A) is a[i * a_row + k * a_col]. For other dtypes
// only `bias`, `scales`, `steps` and the strides are valid; the pointers are those of batch index 0.
struct MatmulOperands {
  const float *a, *b, *bias, *residual;  // bias and residual may be null
  const void* scales;                    // of NF4
  const float* steps;                    // of NF4's quantized scales; may be null
  float* c;                              // (m, n), dense
  std::int64_t a_row, a_col, b_row, b_col;
};
MatmulOperands matmul_operands(const MatmulWork& work, const KernelArgs& args, std::int64_t batch);

// True where the packed kernel copies its left side (element (i, k) at i * row + k * col) before reading it. Rows
// that are a multiple of 2 KiB apart compete for a few sets of the L1 cache. The matrix unit reads 32 rows at a time
// and suffers from smaller distances already; with two panels at a time only six rows are read, which do not suffer.
constexpr bool packs_left(std::int64_t row, std::int64_t col, bool on_amx, bool two_panels) {
  return col != 1 || (!two_panels && row % (on_amx ? 128 : 512) == 0);
}
// The packed kernel's tile_k: blocks of k of about equal depth, so deep that sums are rarely loaded again, and so
// shallow that a panel of columns stays in cache.
std::int64_t packed_depth(std::int64_t k);
std::int64_t packed_depth(const MatmulWork& work);
// The packed kernel's panel: rows whose block of k stays in the L2 cache beside the panels of columns. A slab of few
// rows is one panel, so that no panel of columns is read twice.
std::int64_t packed_panel(std::int64_t rows);
std::int64_t packed_panel(const MatmulWork& work, std::int64_t rows);
constexpr std::int64_t kTransposedRows = 32;  // rows of C transposed at a time when the sides are swapped

// The slabs of the packed kernel: those that keep every core busy with as little packing as possible.
kernels::Fit fit_packed_slabs(const MatmulWork& work, const hal::DeviceInfo& target);

// The reason why no kernel of this family computes the call, or "". With `low_precision`, 16-bit floats are accepted.
std::string matmul_refusal(const kernels::CallView& call, bool low_precision = false);

// The kernels of matmul_*.cpp; matmul_variants.cpp holds the tables.
void run_matmul_naive(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_blas(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_packed(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_nf4_matmul_few_rows(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_skinny(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_gpu_tile(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_tpu_stationary(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);
void run_matmul_trainium_psum(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker);

}  // namespace meshloom::backends::cpu
