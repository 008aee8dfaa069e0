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
#include "backends/cpu/kernels/block_quantized/dequantize_blocks.h"
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
  // Weights in blocks along k, or null. `data` is where the first line begins, and `column` the first of its columns.
  const kernels::block_quantized::Format* blocks = nullptr;
  std::int64_t column = 0, row_bytes = 0;

  bool along_k() const { return step == 1; }
  Side from(std::int64_t lines, std::int64_t steps) const {
    Side part = *this;
    if (blocks != nullptr) {
      part.data += lines * row_bytes;
      part.column += steps;
    } else if (dtype == hal::DType::u8)
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
    if (side.blocks != nullptr)
      dequantize_blocks(*side.blocks, reinterpret_cast<const std::uint8_t*>(side.data) + i * side.row_bytes,
                        side.column, length, into + i * length);
    else if (side.dtype == hal::DType::u8)
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

// B of weights in blocks.
Side block_side(const MatmulWork& work, const MatmulOperands& o) {
  const auto& format = kernels::block_quantized::format_of(
      static_cast<kernels::block_quantized::FormatId>(work.block_format - 1));
  Side side{reinterpret_cast<const std::byte*>(o.b), hal::DType::u8, 0, 1};
  side.blocks = &format;
  side.row_bytes = kernels::block_quantized::row_bytes(format, work.k);
  return side;
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

Side side_of(const MatmulWork& work, const float* first, std::int64_t elements_before, std::int64_t line,
             std::int64_t step) {
  return {reinterpret_cast<const std::byte*>(first) + bytes_of(work.dtype, elements_before),
          work.dtype,
          line,
          step,
          {},
          work.bf16_pairs()};
}

Target target_of(const MatmulWork& work, const MatmulOperands& o, std::int64_t batch) {
  const std::int64_t before = bytes_of(work.result, batch * std::int64_t{work.m} * work.n);
  const auto* residual = reinterpret_cast<const std::byte*>(o.residual);
  return {reinterpret_cast<std::byte*>(o.c) + before, residual == nullptr ? nullptr : residual + before,
          work.result, work.n};
}

// A slab of C. work.panel: rows of the left side that stay in the L2 cache beside the right side's panels.
class Slab {
 public:
  Slab(const MatmulWork& work, const KernelArgs& args, std::int64_t item)
      : work_(work),
        o_(matmul_operands(work, args, 0)),
        batch_(item / work.tiles_m() / work.tiles_n()),
        row_(item % work.tiles_m() * work.tile_m),
        column_(item / work.tiles_m() % work.tiles_n() * work.tile_n),
        swapped_(work.swapped != 0),
        target_(target_of(work, o_, batch_)) {
    const std::int64_t height = std::min<std::int64_t>(work.tile_m, work.m - row_),
                       width = std::min<std::int64_t>(work.tile_n, work.n - column_);
    rows_ = swapped_ ? width : height;
    columns_ = swapped_ ? height : width;
    const Side a =
        side_of(work, o_.a, batch_ * std::int64_t{work.m} * work.k, o_.a_row, o_.a_col).from(row_, 0);
    const Side b = (work.nf4 ? nf4_side(work, o_)
                    : work.block_format
                        ? block_side(work, o_)
                        : side_of(work, o_.b, batch_ * std::int64_t{work.k} * work.n, o_.b_col, o_.b_row))
                       .from(column_, 0);
    left_ = swapped_ ? b : a;
    right_ = swapped_ ? a : b;
    pack_left_ = left_.needs_packing(columns_);
    place_sums();
  }

  void run() {
    for (std::int64_t k0 = 0; k0 < work_.k; k0 += work_.tile_k) {
      const std::int64_t depth = std::min<std::int64_t>(work_.tile_k, work_.k - k0);
      multiply({k0, depth, work_.bf16_pairs() ? ceil_div(depth, 2) : depth, k0 + depth >= work_.k});
    }
  }

 private:
  // A block of k: `steps` are floats, or pairs of bf16.
  struct Depth {
    std::int64_t begin, depth, steps;
    bool last;
  };
  enum class Slot { right, left, sums, transposed, loaded_right, loaded_left, count };

  // Chooses where the sums are, and cuts the scratch.
  void place_sums() {
    const bool low_precision_result = work_.result != hal::DType::f32;
    // The sums must not overwrite a residual before it is read.
    const bool sums_in_scratch =
        swapped_ || low_precision_result || (o_.residual != nullptr && o_.residual == o_.c);
    // The matrix unit computes sums faster than the L2 cache can store them, so they are finished a strip at a time.
    // With a single block of k the sums need room for one strip only.
    const bool bf16_result = work_.bf16_pairs() && low_precision_result;
    one_block_ = bf16_result && work_.k <= work_.tile_k;
    by_strip_ = bf16_result && work_.on_amx();
    strip_rows_ = by_strip_ ? kAmxStripRows : work_.panel;
    const std::int64_t padded = round_up(columns_, micro_tile().columns);
    scratch_.floats(Slot::right) = work_.tile_k * padded;
    scratch_.floats(Slot::left) = pack_left_ ? packed_a_floats(work_.panel, work_.tile_k) : 0;
    if (sums_in_scratch) scratch_.floats(Slot::sums) = (one_block_ ? strip_rows_ : rows_) * padded;
    scratch_.floats(Slot::transposed) = swapped_ ? kTransposedRows * work_.panel : 0;
    if (right_.dtype != hal::DType::f32) scratch_.floats(Slot::loaded_right) = work_.tile_k * columns_;
    if (left_.dtype != hal::DType::f32)
      scratch_.floats(Slot::loaded_left) = std::int64_t{work_.tile_k} * work_.panel;
    scratch_.cut();
    stride_ = sums_in_scratch ? padded : work_.n;
    sums_ = sums_in_scratch ? scratch_[Slot::sums]
                            : o_.c + batch_ * std::int64_t{work_.m} * work_.n + row_ * work_.n + column_;
  }

  // Adds the products of one block of k to the sums, and stores the results after the last.
  void multiply(const Depth& k) {
    LoadedBlock right{};
    BView packed{};
    const bool pack_while_multiplying = pack_right(k, right, packed);
    for (std::int64_t i = 0; i < rows_; i += work_.panel) {
      const std::int64_t count = std::min<std::int64_t>(work_.panel, rows_ - i);
      const LoadedBlock left =
          load_block(left_.from(i, k.begin), count, k.depth, scratch_[Slot::loaded_left]);
      const AView a = pack_left_
                          ? pack_a(left.data, left.line, left.step, count, k.steps, scratch_[Slot::left])
                          : plain_a(left.data, left.line, left.step);
      const bool packs = i == 0 && pack_while_multiplying;
      if (packs)
        packed = micro_gemm_packing(count, columns_, k.steps, a, right.data, right.step, rows_ > count,
                                    scratch_[Slot::right], sums_, stride_, k.begin > 0);
      for (std::int64_t r = 0; r < count; r += strip_rows_) {
        const std::int64_t high = std::min(strip_rows_, count - r);
        if (k.last && by_strip_)
          prefetch_for_write(target_, first_element(i + r), swapped_ ? columns_ : high,
                             swapped_ ? high : columns_);
        if (!packs)
          micro_gemm(high, columns_, k.steps, {a.data + r * a.row, a.row, a.col, a.strip}, packed,
                     sums_of(i + r), stride_, k.begin > 0,
                     work_.bf16_pairs() ? OperandType::bf16_pairs : OperandType::f32);
        if (k.last) store(i + r, high);
      }
    }
  }

  // Loads the right side's block and packs it into `packed`, unless it returns true: then the first panel of the left
  // side packs it while it is multiplied.
  bool pack_right(const Depth& k, LoadedBlock& right, BView& packed) const {
    const Side block = right_.from(0, k.begin);
    if (work_.bf16_pairs() && !block.along_k()) {
      packed = pack_pairs(reinterpret_cast<const std::uint16_t*>(block.data), block.step, k.depth, columns_,
                          scratch_[Slot::right]);
      return false;
    }
    right = load_block(block, columns_, k.depth, scratch_[Slot::loaded_right]);
    if (!work_.bf16_pairs() && right.line == 1) return true;
    packed = pack_b(right.data, right.step, right.line, k.steps, columns_, scratch_[Slot::right]);
    return false;
  }

  float* sums_of(std::int64_t r) const { return one_block_ ? sums_ : sums_ + r * stride_; }

  // The element of C where the slab's row `r` begins, or its column when the sides are swapped.
  std::int64_t first_element(std::int64_t r) const {
    return swapped_ ? row_ * work_.n + column_ + r : (row_ + r) * work_.n + column_;
  }

  void store(std::int64_t r, std::int64_t high) const {
    const Epilogue epilogue{work_.activation,
                            o_.bias == nullptr ? nullptr : o_.bias + column_ + (swapped_ ? r : 0)};
    if (swapped_)
      store_transposed(epilogue, target_, first_element(r), columns_, high, sums_of(r), stride_,
                       scratch_[Slot::transposed]);
    else
      store_result(epilogue, target_, first_element(r), high, columns_, sums_of(r), stride_);
  }

  const MatmulWork& work_;
  MatmulOperands o_;
  std::int64_t batch_, row_, column_;  // where the slab begins in C
  bool swapped_;
  Target target_;
  std::int64_t rows_ = 0, columns_ = 0;  // of the product, whose sides may be swapped
  Side left_{}, right_{};
  bool pack_left_ = false, one_block_ = false, by_strip_ = false;
  std::int64_t strip_rows_ = 0;
  ScratchSlots<Slot> scratch_;
  float* sums_ = nullptr;
  std::int64_t stride_ = 0;
};

}  // namespace

void run_matmul_packed(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const AmxScope scope;
  for (std::int64_t item = begin; item < end; ++item) Slab(work, args, item).run();
}

}  // namespace meshloom::backends::cpu
