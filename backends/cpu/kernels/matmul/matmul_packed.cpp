// Slabs of C, one block of k at a time. The right operand is packed into column panels that stay in cache, before the
// product or by the first strip of rows that reads it; the left operand is read in place, a strip of rows at a time.
// Every element is summed over blocks of tile_k in order, whatever the slabs are, so slabs may depend on the threads.
//
// With `swapped` the slab is computed as op(B)^T op(A)^T, so that B is read in place. This pays where A has few rows
// and B is transposed: packing B would take a large part of the time.
#include <algorithm>
#include <cstring>

#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/quantized/dequantize_nf4.h"

namespace meshloom::backends::cpu {
namespace {

std::int64_t bytes_of(hal::DType dtype, std::int64_t elements) {
  return elements * static_cast<std::int64_t>(hal::size_of(dtype));
}

// One operand of the product. Its lines, rows of the left side or columns of the right side, are `line` elements
// apart and its steps of k `step` elements; one of the two is 1.
struct Side {
  const std::byte* data;
  hal::DType dtype;
  std::int64_t line, step;
  Nf4Weights nf4{};         // instead of data, where dtype is u8
  bool bf16_pairs = false;  // the inner loop reads bf16 pairs

  bool along_k() const { return step == 1; }
  Side from(std::int64_t lines, std::int64_t steps) const {
    Side part = *this;
    if (dtype == hal::DType::u8)
      part.nf4 = along_k() ? nf4.from(lines, steps) : nf4.from(steps, lines);
    else
      part.data += bytes_of(dtype, lines * line + steps * step);
    return part;
  }
  // True where `data` already consists of pairs along k.
  bool is_paired() const {
    return along_k() && line % 2 == 0 && reinterpret_cast<std::uintptr_t>(data) % sizeof(float) == 0;
  }
  // As the left side: true where its pairs are transposed, as the matrix unit reads rows along k.
  bool needs_transpose() const { return bf16_pairs && !along_k() && bf16_pairs_on_amx(); }
  // As the left side of a product with `columns` columns: true where it is packed.
  bool needs_packing(std::int64_t columns) const {
    if (dtype == hal::DType::f32) return packs_left(line, step, false, uses_two_panels(columns));
    if (!along_k()) return !needs_transpose();
    return bf16_pairs && is_paired() && packs_left(line / 2, 1, bf16_pairs_on_amx(), false);
  }
};

// A block of a side as the inner loop reads it: f32, or bf16 pairs, which are words of two steps. `line` and `step`
// are in floats or words.
struct LoadedBlock {
  const float* data;
  std::int64_t line, step;
};

// The first `lines` lines and `steps` steps of the side: in place, or converted into `into`.
LoadedBlock load_block(const Side& side, std::int64_t lines, std::int64_t steps, float* into) {
  const bool along_k = side.along_k();
  if (side.dtype == hal::DType::f32) return {reinterpret_cast<const float*>(side.data), side.line, side.step};
  const std::int64_t stride = along_k ? side.line : side.step;
  const auto run = [&](std::int64_t i) { return side.data + bytes_of(side.dtype, i * stride); };
  if (side.bf16_pairs) {
    if (side.needs_transpose()) {
      const std::int64_t row = padded_stride(ceil_div(steps, 2));
      transpose_pairs(reinterpret_cast<const std::uint16_t*>(side.data), side.step, steps, lines, into, row);
      return {into, row, 1};
    }
    if (!along_k) {
      interleave_pairs(reinterpret_cast<const std::uint16_t*>(side.data), side.step, steps, lines, into);
      return {into, 1, lines};
    }
    if (side.is_paired() && steps % 2 == 0)
      return {reinterpret_cast<const float*>(side.data), side.line / 2, 1};
    const std::int64_t words = ceil_div(steps, 2);
    for (std::int64_t i = 0; i < lines; ++i) {
      into[i * words + words - 1] = 0.0f;
      std::memcpy(into + i * words, run(i), static_cast<std::size_t>(bytes_of(side.dtype, steps)));
    }
    return {into, words, 1};
  }
  const std::int64_t runs = along_k ? lines : steps, length = along_k ? steps : lines;
  for (std::int64_t i = 0; i < runs; ++i)
    if (side.dtype == hal::DType::u8)
      dequantize_nf4(side.nf4.from(i, 0), length, into + i * length);
    else
      widen(run(i), side.dtype, length, into + i * length);
  if (along_k) return {into, length, 1};
  return {into, 1, length};
}

// B of NF4 weights.
Side nf4_side(const MatmulWork& work, const MatmulOperands& o) {
  const std::int64_t columns = work.trans_b ? work.k : work.n;
  return {nullptr, hal::DType::u8, work.trans_b ? 0 : 1, work.trans_b ? 1 : 0,
          nf4_weights(reinterpret_cast<const std::uint8_t*>(o.b), o.scales, o.steps, columns, work.block)};
}

// C and the residual.
struct Target {
  std::byte* c;
  const std::byte* residual;  // or null
  hal::DType dtype;
  std::int64_t stride;
};

// Applies the epilogue to the sums and stores them in C from element `at` on. The sums may be C itself.
void store_result(Epilogue epilogue, const Target& target, std::int64_t at, std::int64_t rows,
                  std::int64_t columns, const float* sums, std::int64_t stride) {
  std::byte* c = target.c + bytes_of(target.dtype, at);
  epilogue.dtype = target.dtype;
  if (target.residual != nullptr) epilogue.residual = target.residual + bytes_of(target.dtype, at);
  if (epilogue.any() || static_cast<const void*>(c) != sums)
    apply_epilogue(epilogue, rows, columns, sums, stride, c, target.stride);
}

// Likewise where the columns of `sums` are rows of C, a few rows at a time.
void store_transposed(const Epilogue& epilogue, const Target& target, std::int64_t at, std::int64_t rows,
                      std::int64_t columns, const float* sums, std::int64_t stride, float* transposed) {
  for (std::int64_t i = 0; i < rows; i += kTransposedRows) {
    const std::int64_t count = std::min(kTransposedRows, rows - i);
    transpose(sums + i, stride, columns, count, transposed, columns);
    store_result(epilogue, target, at + i * target.stride, count, columns, transposed, columns);
  }
}

// Prefetches a block of C for writing: stores to lines that are not in cache would delay what follows.
void prefetch_for_write(const Target& target, std::int64_t at, std::int64_t rows, std::int64_t columns) {
#if defined(__x86_64__)
  constexpr std::int64_t kLine = 64;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* row = target.c + bytes_of(target.dtype, at + r * target.stride);
    // Inline assembly: __builtin_prefetch emits this instruction only with compiler options that also enable others.
    for (std::int64_t i = 0; i < bytes_of(target.dtype, columns); i += kLine)
      __asm__ volatile("prefetchw %0" ::"m"(row[i]));
  }
#endif
}

}  // namespace

// work.panel: rows of the left side that stay in the L2 cache beside the right side's panels.
void run_matmul_packed(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t tiles_m = work.tiles_m(), tiles_n = work.tiles_n();
  const MicroTile micro = micro_tile();
  const bool swapped = work.swapped != 0;
  const AmxScope scope;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item % tiles_m * work.tile_m, column = item / tiles_m % tiles_n * work.tile_n;
    const std::int64_t height = std::min<std::int64_t>(work.tile_m, work.m - row),
                       width = std::min<std::int64_t>(work.tile_n, work.n - column);
    const std::int64_t rows = swapped ? width : height, columns = swapped ? height : width;
    const MatmulOperands o = matmul_operands(work, args, 0);
    const std::int64_t batch = item / tiles_m / tiles_n, matrix = static_cast<std::int64_t>(work.m) * work.n;
    const bool low_precision_result = work.result != hal::DType::f32;
    const auto of_c = [&](const float* first) {
      return reinterpret_cast<const std::byte*>(first) + bytes_of(work.result, batch * matrix);
    };
    const Target target{const_cast<std::byte*>(of_c(o.c)), o.residual == nullptr ? nullptr : of_c(o.residual),
                        work.result, work.n};
    const bool bf16_pairs = work.bf16_pairs();
    const OperandType operand_type = bf16_pairs ? OperandType::bf16_pairs : OperandType::f32;
    const auto side = [&](const float* first, std::int64_t size, std::int64_t line, std::int64_t step,
                          std::int64_t lines) {
      const Side whole{reinterpret_cast<const std::byte*>(first) + bytes_of(work.dtype, batch * size),
                       work.dtype,
                       line,
                       step,
                       {},
                       bf16_pairs};
      return whole.from(lines, 0);
    };
    const Side a_side = side(o.a, static_cast<std::int64_t>(work.m) * work.k, o.a_row, o.a_col, row);
    const Side b_side = work.nf4
                            ? nf4_side(work, o).from(column, 0)
                            : side(o.b, static_cast<std::int64_t>(work.k) * work.n, o.b_col, o.b_row, column);
    const Side &left_side = swapped ? b_side : a_side, &right_side = swapped ? a_side : b_side;
    // The sums must not overwrite a residual before it is read.
    const bool sums_in_scratch =
        swapped || low_precision_result || (o.residual != nullptr && o.residual == o.c);
    const bool pack_left = left_side.needs_packing(columns);
    // The matrix unit computes sums faster than the L2 cache can store them, so they are finished a strip at a time.
    // With a single block of k the sums need room for one strip only.
    const bool bf16_result = bf16_pairs && low_precision_result,
               one_block = bf16_result && work.k <= work.tile_k;
    const bool by_strip = bf16_result && work.on_amx();
    const std::int64_t strip_rows = by_strip ? kAmxStripRows : work.panel;
    enum class Slot { right, left, sums, transposed, loaded_right, loaded_left, count };
    ScratchSlots<Slot> scratch;
    scratch.floats(Slot::right) = work.tile_k * round_up(columns, micro.columns);
    scratch.floats(Slot::left) = pack_left ? packed_a_floats(work.panel, work.tile_k) : 0;
    if (sums_in_scratch)
      scratch.floats(Slot::sums) = (one_block ? strip_rows : rows) * round_up(columns, micro.columns);
    scratch.floats(Slot::transposed) = swapped ? kTransposedRows * work.panel : 0;
    if (right_side.dtype != hal::DType::f32) scratch.floats(Slot::loaded_right) = work.tile_k * columns;
    if (left_side.dtype != hal::DType::f32)
      scratch.floats(Slot::loaded_left) = std::int64_t{work.tile_k} * work.panel;
    scratch.cut();
    float* sums = sums_in_scratch ? scratch[Slot::sums] : o.c + batch * matrix + row * work.n + column;
    const std::int64_t stride = sums_in_scratch ? round_up(columns, micro.columns) : work.n;
    for (std::int64_t k0 = 0; k0 < work.k; k0 += work.tile_k) {
      const std::int64_t depth = std::min<std::int64_t>(work.tile_k, work.k - k0);
      const std::int64_t steps = bf16_pairs ? ceil_div(depth, 2) : depth;
      const bool last = k0 + depth >= work.k;
      const Side right_block = right_side.from(0, k0);
      LoadedBlock right{};
      BView packed{};
      if (bf16_pairs && !right_block.along_k())
        packed = pack_pairs(reinterpret_cast<const std::uint16_t*>(right_block.data), right_block.step, depth,
                            columns, scratch[Slot::right]);
      else
        right = load_block(right_block, columns, depth, scratch[Slot::loaded_right]);
      const bool pack_while_multiplying = !bf16_pairs && right.line == 1;
      if (packed.data == nullptr && !pack_while_multiplying)
        packed = pack_b(right.data, right.step, right.line, steps, columns, scratch[Slot::right]);
      for (std::int64_t i = 0; i < rows; i += work.panel) {
        const std::int64_t count = std::min<std::int64_t>(work.panel, rows - i);
        const LoadedBlock left = load_block(left_side.from(i, k0), count, depth, scratch[Slot::loaded_left]);
        const AView a = pack_left ? pack_a(left.data, left.line, left.step, count, steps, scratch[Slot::left])
                                  : plain_a(left.data, left.line, left.step);
        if (i == 0 && pack_while_multiplying)
          packed = micro_gemm_packing(count, columns, steps, a, right.data, right.step, rows > count,
                                      scratch[Slot::right], sums, stride, k0 > 0);
        for (std::int64_t r = 0; r < count; r += strip_rows) {
          const std::int64_t high = std::min(strip_rows, count - r);
          const std::int64_t first =
              swapped ? row * work.n + column + i + r : (row + i + r) * work.n + column;
          float* to = one_block ? sums : sums + (i + r) * stride;
          if (last && by_strip)
            prefetch_for_write(target, first, swapped ? columns : high, swapped ? high : columns);
          if (i > 0 || !pack_while_multiplying)
            micro_gemm(high, columns, steps, {a.data + r * a.row, a.row, a.col, a.strip}, packed, to, stride,
                       k0 > 0, operand_type);
          if (!last) continue;
          const Epilogue epilogue{work.activation,
                                  o.bias == nullptr ? nullptr : o.bias + column + (swapped ? i + r : 0)};
          if (swapped)
            store_transposed(epilogue, target, first, columns, high, to, stride, scratch[Slot::transposed]);
          else
            store_result(epilogue, target, first, high, columns, to, stride);
        }
      }
    }
  }
}

}  // namespace meshloom::backends::cpu
