// Slabs of C, block by block of k: one operand in column panels that stay in cache (packed before, or by the
// first strip of rows that reads it), the other read in place a strip of rows at a time. Every element is
// summed over blocks of tile_k in order, whatever the slabs are: they may follow the threads.
//
// Swapped, the slab is computed as op(B)^T op(A)^T: B is then the side that is read in place. Where A has few
// rows and B lies transposed, packing B would cost as much as a good part of the product.
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

// One side of the product: its rows (of the left side) or columns (of the right side) `line` elements apart, steps of k
// `step` apart. Along one of the two its elements lie side by side.
struct Side {
  const std::byte* data;
  hal::DType dtype;
  std::int64_t line, step;
  Nf4Weights nf4{};     // instead of data, where dtype is u8
  bool paired = false;  // of bf16 numbers that the inner loop takes as pairs along k

  bool along_k() const { return step == 1; }
  Side from(std::int64_t lines, std::int64_t steps) const {
    Side part = *this;
    if (dtype == hal::DType::u8)
      part.nf4 = along_k() ? nf4.from(lines, steps) : nf4.from(steps, lines);
    else
      part.data += bytes_of(dtype, lines * line + steps * step);
    return part;
  }
  // Do its words lie ready, from `data` on?
  bool in_words() const {
    return along_k() && line % 2 == 0 && reinterpret_cast<std::uintptr_t>(data) % sizeof(float) == 0;
  }
  // As the left side: is it turned along k, as the matrix unit wants it?
  bool turned() const { return paired && !along_k() && bf16_pairs_in_tiles(); }
  // As the left side of `columns` columns: is it copied before it is read?
  bool packed(std::int64_t columns) const {
    if (dtype == hal::DType::f32) return packs_left(line, step, false, takes_panels_in_pairs(columns));
    if (!along_k()) return !turned();
    return paired && in_words() && packs_left(line / 2, 1, bf16_pairs_in_tiles(), false);
  }
};

// A side as the inner loop reads it, `line` and `step` counted in floats, or words, of which each is two
// steps.
struct Readable {
  const float* data;
  std::int64_t line, step;
};

// A block of it: where it lies, or a copy in `into`, as f32 or as words.
Readable readable(const Side& side, std::int64_t lines, std::int64_t steps, float* into) {
  const bool along_k = side.along_k();
  if (side.dtype == hal::DType::f32) return {reinterpret_cast<const float*>(side.data), side.line, side.step};
  const std::int64_t apart = along_k ? side.line : side.step;
  const auto run = [&](std::int64_t i) { return side.data + bytes_of(side.dtype, i * apart); };
  if (side.paired) {
    if (side.turned()) {
      const std::int64_t row = spread_row(ceil_div(steps, 2));
      turn_pairs(reinterpret_cast<const std::uint16_t*>(side.data), side.step, steps, lines, into, row);
      return {into, row, 1};
    }
    if (!along_k) {
      pair_rows(reinterpret_cast<const std::uint16_t*>(side.data), side.step, steps, lines, into);
      return {into, 1, lines};
    }
    if (side.in_words() && steps % 2 == 0)
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
      widen_nf4(side.nf4.from(i, 0), length, into + i * length);
    else
      widen(run(i), side.dtype, length, into + i * length);
  if (along_k) return {into, length, 1};
  return {into, 1, length};
}

// B of four-bit weights.
Side nf4_side(const MatmulWork& work, const MatmulOperands& o) {
  const std::int64_t columns = work.trans_b ? work.k : work.n;
  return {nullptr, hal::DType::u8, work.trans_b ? 0 : 1, work.trans_b ? 1 : 0,
          nf4_weights(reinterpret_cast<const std::uint8_t*>(o.b), o.scales, o.steps, columns, work.block)};
}

// Where finished sums go.
struct Target {
  std::byte* c;
  const std::byte* residual;  // or null
  hal::DType dtype;
  std::int64_t stride;
};

// C at element `at` = what the epilogue makes of the sums, which may be C itself.
void finish(Epilogue epilogue, const Target& target, std::int64_t at, std::int64_t rows, std::int64_t columns,
            const float* sums, std::int64_t stride) {
  std::byte* c = target.c + bytes_of(target.dtype, at);
  epilogue.dtype = target.dtype;
  if (target.residual != nullptr) epilogue.residual = target.residual + bytes_of(target.dtype, at);
  if (epilogue.any() || static_cast<const void*>(c) != sums)
    apply_epilogue(epilogue, rows, columns, sums, stride, c, target.stride);
}

// The same where the columns of `sums` are rows of C, a few rows at a time.
void finish_transposed(const Epilogue& epilogue, const Target& target, std::int64_t at, std::int64_t rows,
                       std::int64_t columns, const float* sums, std::int64_t stride, float* turned) {
  for (std::int64_t i = 0; i < rows; i += kTurned) {
    const std::int64_t count = std::min(kTurned, rows - i);
    transpose(sums + i, stride, columns, count, turned, columns);
    finish(epilogue, target, at + i * target.stride, count, columns, turned, columns);
  }
}

// Asks for the lines of a block of C before it is made: stores to lines that are far away hold up what
// follows.
void ask_for(const Target& target, std::int64_t at, std::int64_t rows, std::int64_t columns) {
#if defined(__x86_64__)
  constexpr std::int64_t kLine = 64;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* row = target.c + bytes_of(target.dtype, at + r * target.stride);
    // The compiler has no word for this instruction unless it may use others.
    for (std::int64_t i = 0; i < bytes_of(target.dtype, columns); i += kLine)
      __asm__ volatile("prefetchw %0" ::"m"(row[i]));
  }
#endif
}

}  // namespace

// work.panel: rows of the left side that stay in the second-level cache beside the right side's panels.
void run_matmul_packed(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t tiles_m = work.tiles_m(), tiles_n = work.tiles_n();
  const MicroTile micro = micro_tile();
  const bool swapped = work.swapped != 0;
  const TileScope scope;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item % tiles_m * work.tile_m, column = item / tiles_m % tiles_n * work.tile_n;
    const std::int64_t height = std::min<std::int64_t>(work.tile_m, work.m - row),
                       width = std::min<std::int64_t>(work.tile_n, work.n - column);
    const std::int64_t rows = swapped ? width : height, columns = swapped ? height : width;
    const MatmulOperands o = matmul_operands(work, args, 0);
    const std::int64_t batch = item / tiles_m / tiles_n, matrix = static_cast<std::int64_t>(work.m) * work.n;
    const bool narrow_result = work.result != hal::DType::f32;
    const auto of_c = [&](const float* first) {
      return reinterpret_cast<const std::byte*>(first) + bytes_of(work.result, batch * matrix);
    };
    const Target target{const_cast<std::byte*>(of_c(o.c)), o.residual == nullptr ? nullptr : of_c(o.residual),
                        work.result, work.n};
    const bool paired = work.paired();
    const Factors factors = paired ? Factors::bf16_pairs : Factors::f32;
    const auto side = [&](const float* first, std::int64_t size, std::int64_t line, std::int64_t step,
                          std::int64_t lines) {
      const Side whole{reinterpret_cast<const std::byte*>(first) + bytes_of(work.dtype, batch * size),
                       work.dtype,
                       line,
                       step,
                       {},
                       paired};
      return whole.from(lines, 0);
    };
    const Side a_side = side(o.a, static_cast<std::int64_t>(work.m) * work.k, o.a_row, o.a_col, row);
    const Side b_side = work.nf4
                            ? nf4_side(work, o).from(column, 0)
                            : side(o.b, static_cast<std::int64_t>(work.k) * work.n, o.b_col, o.b_row, column);
    const Side &left_side = swapped ? b_side : a_side, &right_side = swapped ? a_side : b_side;
    // The sums may not land on a residual that is still to be read.
    const bool apart = swapped || narrow_result || (o.residual != nullptr && o.residual == o.c);
    const bool pack_left = left_side.packed(columns);
    // Where the matrix unit makes sums faster than the second-level cache takes them, they are finished a
    // strip at a time; with one block of k they need no more room than that.
    const bool near = paired && narrow_result, one_block = near && work.k <= work.tile_k;
    const bool by_strip = near && work.in_tiles();
    const std::int64_t at_once = by_strip ? kTileRows : work.panel;
    const auto scratch = thread_scratch(
        {work.tile_k * round_up(columns, micro.columns),
         pack_left ? packed_a_floats(work.panel, work.tile_k) : 0,
         apart ? (one_block ? at_once : rows) * round_up(columns, micro.columns) : 0,
         swapped ? kTurned * work.panel : 0, right_side.dtype != hal::DType::f32 ? work.tile_k * columns : 0,
         left_side.dtype != hal::DType::f32 ? work.tile_k * work.panel : 0});
    float* sums = apart ? scratch[2] : o.c + batch * matrix + row * work.n + column;
    const std::int64_t stride = apart ? round_up(columns, micro.columns) : work.n;
    for (std::int64_t k0 = 0; k0 < work.k; k0 += work.tile_k) {
      const std::int64_t depth = std::min<std::int64_t>(work.tile_k, work.k - k0);
      const std::int64_t steps = paired ? ceil_div(depth, 2) : depth;
      const bool last = k0 + depth >= work.k;
      const Side right_block = right_side.from(0, k0);
      Readable right{};
      BView packed{};
      if (paired && !right_block.along_k())
        packed = pack_pairs(reinterpret_cast<const std::uint16_t*>(right_block.data), right_block.step, depth,
                            columns, scratch[0]);
      else
        right = readable(right_block, columns, depth, scratch[4]);
      const bool on_the_way = !paired && right.line == 1;
      if (packed.data == nullptr && !on_the_way)
        packed = pack_b(right.data, right.step, right.line, steps, columns, scratch[0]);
      for (std::int64_t i = 0; i < rows; i += work.panel) {
        const std::int64_t count = std::min<std::int64_t>(work.panel, rows - i);
        const Readable left = readable(left_side.from(i, k0), count, depth, scratch[5]);
        const AView a = pack_left ? pack_a(left.data, left.line, left.step, count, steps, scratch[1])
                                  : plain_a(left.data, left.line, left.step);
        if (i == 0 && on_the_way)
          packed = micro_gemm_packing(count, columns, steps, a, right.data, right.step, rows > count,
                                      scratch[0], sums, stride, k0 > 0);
        for (std::int64_t r = 0; r < count; r += at_once) {
          const std::int64_t high = std::min(at_once, count - r);
          const std::int64_t first =
              swapped ? row * work.n + column + i + r : (row + i + r) * work.n + column;
          float* to = one_block ? sums : sums + (i + r) * stride;
          if (last && by_strip) ask_for(target, first, swapped ? columns : high, swapped ? high : columns);
          if (i > 0 || !on_the_way)
            micro_gemm(high, columns, steps, {a.data + r * a.row, a.row, a.col, a.strip}, packed, to, stride,
                       k0 > 0, factors);
          if (!last) continue;
          const Epilogue epilogue{work.activation,
                                  o.bias == nullptr ? nullptr : o.bias + column + (swapped ? i + r : 0)};
          if (swapped)
            finish_transposed(epilogue, target, first, columns, high, to, stride, scratch[3]);
          else
            finish(epilogue, target, first, high, columns, to, stride);
        }
      }
    }
  }
}

}  // namespace meshloom::backends::cpu
