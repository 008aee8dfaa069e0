// Products with few rows of A: B is read once, in place, at the speed of memory. The order of every sum depends on the
// shape and the vector width alone.
#include "backends/cpu/kernels/matmul/matmul_skinny.h"
#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/kernels/cast.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/matmul/matmul_skinny.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/stored_floats-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// bf16 in pairs that stand for floats: an instruction multiplies both numbers of two pairs, exactly, and adds the products to a float.
// Without it, pairs are not used (SkinnyBlock::pairs).
struct Bf16Pairs : Stored<hal::DType::f32> {};

template <class Of>
HWY_INLINE V MultiplyAdd(V a, V b, V sum) {
#if HWY_TARGET <= HWY_AVX3 && defined(__x86_64__)
  if constexpr (std::is_same_v<Of, Bf16Pairs>) {
    // Inline assembly, since the instruction set that this is compiled for does not include it.
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
#endif
  return hn::MulAdd(a, b, sum);
}

// The first `count` floats at `from`, fewer than a vector, and zeros. A remainder goes through vectors too, as scalars are
// multiplied and added with one rounding or two as the compiler likes, and a row's bits must not depend on M.
template <class Of>
HWY_INLINE V LoadFirst(D d, const typename Of::T* from, std::int64_t count) {
  HWY_ALIGN float padded[hn::MaxLanes(D())] = {};
  for (std::int64_t i = 0; i < count; ++i) padded[i] = Of::load_one(from[i]);
  return hn::Load(d, padded);
}

#if HWY_TARGET != HWY_SCALAR
// The sum of a vector's blocks of four lanes, from the first to the last.
template <class DV>
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> AddBlocks(DV d, hn::Vec<DV> v) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return v;
  } else {
    const hn::Half<DV> half;
    const auto low = hn::LowerHalf(half, v), high = hn::UpperHalf(half, v);
    if constexpr (hn::MaxLanes(d) == 8) {
      return hn::Add(low, high);
    } else {
      static_assert(hn::MaxLanes(d) == 16);
      const hn::Half<decltype(half)> block;
      return hn::Add(hn::Add(AddBlocks(half, low), hn::LowerHalf(block, high)), hn::UpperHalf(block, high));
    }
  }
}
#endif

// Of each of four vectors the sum of its lanes, in this order whichever of them it is.
HWY_INLINE void SumsOfLanes([[maybe_unused]] D d, V v0, V v1, V v2, V v3, float* HWY_RESTRICT sums) {
#if HWY_TARGET == HWY_SCALAR
  for (const V v : {v0, v1, v2, v3}) *sums++ = hn::GetLane(v);
#else
  const auto pairs = [d](V x, V y) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, x, y), hn::InterleaveUpper(d, x, y));
  };
  // Of each block of four lanes: the block's sums of v0 to v3.
  const V blocks = pairs(pairs(v0, v2), pairs(v1, v3));
  hn::StoreU(AddBlocks(d, blocks), hn::CappedTag<float, 4>(), sums);
#endif
}

// Two bf16 in a word of 32 bits take an operation each to become two floats: the low halves of a vector of words, then the high ones.
template <class Of>
constexpr bool kInPairs = HWY_TARGET != HWY_SCALAR&& std::is_same_v<Of, Stored<hal::DType::bf16>>;

template <class Of>
constexpr std::int64_t kLine = 64 / sizeof(typename Of::T);  // elements of a cache line

// Brings the elements of A into the order in which Dots reads those of B: of each two vectors the even ones, then the odd ones.
template <class Of>
void OrderPairs([[maybe_unused]] float* a, [[maybe_unused]] std::int64_t rows,
                [[maybe_unused]] std::int64_t k) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kInPairs<Of>) {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t i = 0; i < rows; ++i, a += k)
      for (std::int64_t at = 0; at < k / kLine<Of> * kLine<Of>; at += 2 * lanes) {
        const V low = hn::LoadU(d, a + at), high = hn::LoadU(d, a + at + lanes);
        hn::StoreU(hn::ConcatEven(d, high, low), d, a + at);
        hn::StoreU(hn::ConcatOdd(d, high, low), d, a + at + lanes);
      }
  }
#endif
}

// out[i * stride + j] = sum over k of a[i * a_row + k] b[j * b_row + k] for i < M, j < ROWS. Sums are vectors along
// k, whose lanes are added at the end. B is of floats as Of tells. With FETCH B comes from memory: its cache lines are asked for ahead of
// time, in the order of addresses, which memory answers at twice the speed of ROWS streams.
template <class Of, int M, int ROWS, bool FETCH>
HWY_INLINE void Dots(std::int64_t k, const float* a, std::int64_t a_row, const typename Of::T* b,
                     std::int64_t b_row, float* out, std::int64_t stride) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // The processor fetches the rest of a page of 4 KiB by itself: to ask within the same page, or for the L1 cache, takes half its speed.
  constexpr std::int64_t kAhead = 8 * 1024;  // bytes
  const std::int64_t all_bytes = ROWS * b_row * static_cast<std::int64_t>(sizeof(typename Of::T));
  [[maybe_unused]] const auto* next = reinterpret_cast<const std::byte*>(b) + std::max(kAhead, all_bytes);
  V sums[M][ROWS];
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < ROWS; ++j) sums[i][j] = hn::Zero(d);
  std::int64_t step = 0;
  const auto add = [&](std::int64_t at, const auto& load) HWY_ATTR {
    V right[ROWS];
#pragma GCC unroll 8
    for (int j = 0; j < ROWS; ++j) right[j] = load(b + j * b_row);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      const V left = hn::LoadU(d, a + i * a_row + at);
#pragma GCC unroll 8
      for (int j = 0; j < ROWS; ++j) sums[i][j] = MultiplyAdd<Of>(left, right[j], sums[i][j]);
    }
  };
  for (; step + kLine<Of> <= k; step += kLine<Of>) {
    if constexpr (FETCH) {
      constexpr int kRead = 0, kIntoL2 = 2;
#pragma GCC unroll 8
      for (int j = 0; j < ROWS; ++j) __builtin_prefetch(next + 64 * j, kRead, kIntoL2);
      next += 64 * ROWS;
    }
    if constexpr (kInPairs<Of>) {
      const hn::RebindToUnsigned<D> du;
      for (std::int64_t at = step; at < step + kLine<Of>; at += 2 * lanes) {
        const auto words = [&](const typename Of::T* row) HWY_ATTR {
          return hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(row + at));
        };
        add(at, [&](const typename Of::T* row)
                    HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<16>(words(row))); });
        add(at + lanes, [&](const typename Of::T* row) HWY_ATTR {
          return hn::BitCast(d, hn::And(words(row), hn::Set(du, 0xffff0000u)));
        });
      }
    } else {
      for (std::int64_t at = step; at < step + kLine<Of>; at += lanes)
        add(at, [&](const typename Of::T* row) HWY_ATTR { return Of::load(d, row + at); });
    }
  }
  for (; step < k; step += lanes) {
    const std::int64_t count = std::min(lanes, k - step);
    V right[ROWS];
#pragma GCC unroll 8
    for (int j = 0; j < ROWS; ++j) right[j] = LoadFirst<Of>(d, b + j * b_row + step, count);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      const V left = LoadFirst<Stored<hal::DType::f32>>(d, a + i * a_row + step, count);
#pragma GCC unroll 8
      for (int j = 0; j < ROWS; ++j) sums[i][j] = MultiplyAdd<Of>(left, right[j], sums[i][j]);
    }
  }
  float all[(M * ROWS + 3) / 4 * 4];
  const auto sum = [&](int index)
                       HWY_ATTR { return index < M * ROWS ? sums[index / ROWS][index % ROWS] : hn::Zero(d); };
#pragma GCC unroll 8
  for (int index = 0; index < M * ROWS; index += 4)
    SumsOfLanes(d, sum(index), sum(index + 1), sum(index + 2), sum(index + 3), all + index);
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < ROWS; ++j) out[i * stride + j] = all[i * ROWS + j];
}

// For all m rows of a, MOST at a time: rows of B that fit into registers meet all of them before the next.
template <class Of, int ROWS, int MOST>
HWY_INLINE void DotAll(std::int64_t m, std::int64_t k, const float* a, std::int64_t a_row,
                       const typename Of::T* b, std::int64_t b_row, float* out, std::int64_t stride,
                       bool fetch) {
  for (std::int64_t i = 0; i < m; i += MOST, fetch = false) {
    const auto run = [&]<int ASKED>() HWY_ATTR {
      constexpr int M = std::min(ASKED, MOST);
      if (fetch)
        Dots<Of, M, ROWS, true>(k, a + i * a_row, a_row, b, b_row, out + i * stride, stride);
      else
        Dots<Of, M, ROWS, false>(k, a + i * a_row, a_row, b, b_row, out + i * stride, stride);
    };
    switch (m - i) {
      case 1:
        run.template operator()<1>();
        break;
      case 2:
        run.template operator()<2>();
        break;
      case 3:
        run.template operator()<3>();
        break;
      default:
        run.template operator()<4>();
    }
  }
}

template <class Of>
void DotRows(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_row,
             const typename Of::T* b, std::int64_t b_row, float* out, std::int64_t stride) {
  constexpr bool kManyRegisters = hn::MaxLanes(D()) > 8;
  constexpr int kRows = kManyRegisters ? 4 : 3;  // for four rows of A
  constexpr std::int64_t kCached = 20 * 1024;    // bytes of A that stay in the L1 cache beside rows of B
  const std::int64_t block = std::max<std::int64_t>(4, kCached / std::max<std::int64_t>(1, k * 4) / 4 * 4);
  for (std::int64_t i0 = 0; i0 < m; i0 += block) {
    const std::int64_t rows = std::min(block, m - i0);
    const float* left = a + i0 * a_row;
    float* into = out + i0 * stride;
    std::int64_t j = 0;
    const auto columns = [&]<int ROWS, int MOST>() HWY_ATTR {
      for (; j + ROWS <= n; j += ROWS)
        DotAll<Of, ROWS, MOST>(rows, k, left, a_row, b + j * b_row, b_row, into + j, stride, i0 == 0);
    };
    // One row after another the processor sees a single stream, and asks for it by itself better than we can. Narrower vectors would wait
    // for the sum of the row instead.
    if (rows == 1 && kManyRegisters)
      for (; j < n; ++j) Dots<Of, 1, 1, false>(k, left, a_row, b + j * b_row, b_row, into + j, stride);
    else if (rows <= 2)
      columns.template operator()<4, 2>();
    columns.template operator()<kRows, 4>();
    columns.template operator()<1, 4>();
  }
}

// out[i * stride + j] (+)= sum over `ROWS` rows of a[i * a_row + r * a_col] b[r * b_row + j], j < n. Reads
// and writes whole vectors of `out`, which has room for them.
template <class Of, int M, int ROWS>
HWY_INLINE void AddRows(std::int64_t n, const float* a, std::int64_t a_row, std::int64_t a_col,
                        const typename Of::T* b, std::int64_t b_row, float* out, std::int64_t stride,
                        bool first) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V factors[M][ROWS];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) factors[i][r] = hn::Set(d, a[i * a_row + r * a_col]);
  const auto add = [&](std::int64_t j, const auto& load) HWY_ATTR {
    V sums[M];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) sums[i] = first ? hn::Zero(d) : hn::Load(d, out + i * stride + j);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const V right = load(b + r * b_row + j);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) sums[i] = hn::MulAdd(factors[i][r], right, sums[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) hn::Store(sums[i], d, out + i * stride + j);
  };
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    add(j, [&](const typename Of::T* from) HWY_ATTR { return Of::load(d, from); });
  if (j < n) add(j, [&](const typename Of::T* from) HWY_ATTR { return LoadFirst<Of>(d, from, n - j); });
}

template <class Of, int M>
void SumRows(std::int64_t n, std::int64_t k, const float* a, std::int64_t a_row, std::int64_t a_col,
             const typename Of::T* b, std::int64_t b_row, float* out, std::int64_t stride) {
  constexpr int kRows = M == 1 ? 8 : M == 2 ? 4 : 2;  // M * kRows factors stay in registers
  std::int64_t step = 0;
  for (; step + kRows <= k; step += kRows)
    AddRows<Of, M, kRows>(n, a + step * a_col, a_row, a_col, b + step * b_row, b_row, out, stride, step == 0);
  for (; step < k; ++step)
    AddRows<Of, M, 1>(n, a + step * a_col, a_row, a_col, b + step * b_row, b_row, out, stride, step == 0);
}

template <class Of>
void SkinnyOf(const SkinnyBlock& s, std::int64_t m, std::int64_t n, float* out, std::int64_t stride) {
  const auto* b = static_cast<const typename Of::T*>(s.b);
  if (s.k == 0)
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(out + i * stride, n, 0.0f);
  if (s.b_row == 1 && s.a_col == 1) {
    if (s.wide != nullptr) OrderPairs<Of>(s.wide, m, s.k);
    return DotRows<Of>(m, n, s.k, s.a, s.a_row, b, s.b_col, out, stride);
  }
  const auto run = [&]<int M>(std::int64_t i) {
    SumRows<Of, M>(n, s.k, s.a + i * s.a_row, s.a_row, s.a_col, b, s.b_row, out + i * stride, stride);
  };
  for (std::int64_t i = 0; i < m; i += 4) switch (m - i) {
      case 1:
        run.template operator()<1>(i);
        break;
      case 2:
        run.template operator()<2>(i);
        break;
      case 3:
        run.template operator()<3>(i);
        break;
      default:
        run.template operator()<4>(i);
    }
}

void Skinny(const SkinnyBlock& s, std::int64_t m, std::int64_t n, float* out, std::int64_t stride) {
  if (s.pairs)
    return DotRows<Bf16Pairs>(m, n, s.k / 2, s.a, s.a_row / 2, static_cast<const float*>(s.b), s.b_col / 2,
                              out, stride);
  switch (s.dtype) {
    case hal::DType::bf16:
      return SkinnyOf<Stored<hal::DType::bf16>>(s, m, n, out, stride);
    case hal::DType::f16:
      return SkinnyOf<Stored<hal::DType::f16>>(s, m, n, out, stride);
    default:
      return SkinnyOf<Stored<hal::DType::f32>>(s, m, n, out, stride);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Skinny);

// One work item: tile_n columns of C.
void run_matmul_skinny(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t tiles_n = work.tiles_n(), m = work.m, n = work.n, k = work.k;
  const MatmulOperands o = matmul_operands(work, args, 0);
  // Element `index` of a tensor whose first is `first`.
  const auto element = [](const float* first, hal::DType dtype, std::int64_t index) {
    return reinterpret_cast<const std::byte*>(first) + index * static_cast<std::int64_t>(hal::size_of(dtype));
  };
  const bool pairs = work.bf16_pairs() && !work.on_amx() && k % 2 == 0 && o.b_row == 1 && o.a_col == 1;
  const bool narrow = work.dtype != hal::DType::f32 && !pairs;
  const std::int64_t widest = round_up(std::int64_t{work.tile_n}, std::int64_t{16});
  const auto [sums, wide] = thread_scratch({m * widest, narrow ? m * k : 0});
  std::int64_t widened = -1;  // the batch whose A is in `wide`
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t batch = item / tiles_n, j0 = item % tiles_n * work.tile_n;
    const std::int64_t columns = std::min<std::int64_t>(work.tile_n, n - j0), stride = round_up(columns, 16);
    const float* a = narrow  ? wide
                     : pairs ? reinterpret_cast<const float*>(element(o.a, work.dtype, batch * m * k))
                             : o.a + batch * m * k;
    const bool is_new = narrow && batch != widened;
    if (is_new) widen(element(o.a, work.dtype, batch * m * k), work.dtype, m * k, wide);
    widened = batch;
    HWY_DYNAMIC_DISPATCH(Skinny)
    ({a, element(o.b, work.dtype, batch * k * n + j0 * o.b_col), work.dtype, k, o.a_row, o.a_col, o.b_row,
      o.b_col, is_new ? wide : nullptr, pairs},
     m, columns, sums, stride);
    const std::int64_t at = batch * m * n + j0;
    const Epilogue epilogue{work.activation, o.bias == nullptr ? nullptr : o.bias + j0,
                            o.residual == nullptr ? nullptr : element(o.residual, work.result, at),
                            work.result};
    apply_epilogue(epilogue, m, columns, sums, stride, const_cast<std::byte*>(element(o.c, work.result, at)),
                   n);
  }
}

}  // namespace meshloom::backends::cpu
#endif
