// Exact products of int8. Operands are packed into 32-bit words of two or four steps of k, which processors multiply
// and add lane by lane: the left side by rows, the right side in panels of columns.
#include "kernels/int8_matmul/int8_matmul.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/int8_tile.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/quantized/max_abs.h"
#include "backends/cpu/kernels/rows.h"

// Only this file is compiled for instruction sets with products of four bytes.
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/quantized/int8_matmul.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/multiply_add_bytes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<std::int32_t, 16>;
using V = hn::Vec<D>;

#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kRows = 12;
#else
constexpr int kRows = 6;
#endif

// Of k in a word: four bytes, the left side's being unsigned as 128 is added when they are packed, or two int16.
constexpr std::int64_t kSteps = kMultipliesBytes ? 4 : 2;
HWY_INLINE V MultiplyAdd([[maybe_unused]] D d, V a, V b, V sum) {
#if HWY_TARGET <= HWY_AVX3_DL && defined(__x86_64__)
  return MultiplyAddBytes(a, b, sum);
#else
  return MultiplyAddPairs(d, a, b, sum);
#endif
}

std::int64_t Rows() { return kRows; }
std::int64_t Columns() { return 2 * static_cast<std::int64_t>(hn::Lanes(D())); }
std::int64_t Steps() { return kSteps; }

// Packs `k` numbers into words, the last one padded with zeros; `left`: with the offset of the left side.
void PackRow(const std::int8_t* from, std::int64_t k, bool left, std::int32_t* words) {
  const std::int64_t whole = round_up(k, kSteps);
  if constexpr (kSteps == 4) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(words);
    const auto offset = static_cast<std::uint8_t>(left ? 128 : 0);
    for (std::int64_t i = 0; i < k; ++i)
      bytes[i] = static_cast<std::uint8_t>(static_cast<std::uint8_t>(from[i]) ^ offset);
    for (std::int64_t i = k; i < whole; ++i) bytes[i] = offset;
  } else {
    auto* halves = reinterpret_cast<std::int16_t*>(words);
    for (std::int64_t i = 0; i < k; ++i) halves[i] = from[i];
    for (std::int64_t i = k; i < whole; ++i) halves[i] = 0;
  }
}

// The term that cancels the left side's offset in a column of the right side.
std::int32_t Correction(const std::int8_t* column, std::int64_t k) {
  if constexpr (kSteps != 4) return 0;
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += column[i];
  return static_cast<std::int32_t>(
      0u - 128u * static_cast<std::uint32_t>(sum));  // wraps modulo 2^32, as the sums do
}

// Scales a vector of sums of one row, for the columns from `at` on.
HWY_INLINE hn::Vec<hn::Rebind<float, D>> Finished(D d, V sum, float scale, const Int8Epilogue& finish,
                                                  std::int64_t at) {
  const hn::Rebind<float, D> df;
  sum = hn::Add(sum, hn::LoadU(d, finish.corrections + at));
  const auto value =
      hn::Mul(hn::Mul(hn::ConvertTo(df, sum), hn::Set(df, scale)), hn::LoadU(df, finish.b_scales + at));
  return finish.bias == nullptr ? value : hn::Add(value, hn::LoadU(df, finish.bias + at));
}

// Finishes rows of a panel's sums, which are one panel's width apart.
void FinishPanel(std::int64_t rows, std::int64_t width, const std::int32_t* sums,
                 const Int8Epilogue& finish) {
  const D d;
  const hn::Rebind<float, D> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN float edge[2 * HWY_MAX_BYTES / sizeof(float)];
  for (std::int64_t i = 0; i < rows; ++i, sums += 2 * lanes) {
    float* row = width == 2 * lanes ? finish.c + i * finish.stride : edge;
    for (std::int64_t at = 0; at < 2 * lanes; at += lanes)
      hn::StoreU(Finished(d, hn::LoadU(d, sums + at), finish.a_scales[i], finish, at), df, row + at);
    if (row == edge) std::copy_n(edge, width, finish.c + i * finish.stride);
  }
}

template <int ROWS>
HWY_NOINLINE void Micro(std::int64_t words, const std::int32_t* HWY_RESTRICT a, std::int64_t a_row,
                        const std::int32_t* HWY_RESTRICT b, const Int8Epilogue& finish, std::int64_t width) {
  const D d;
  const hn::Rebind<float, D> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V left[ROWS], right[ROWS];
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) left[i] = right[i] = hn::Zero(d);
  for (std::int64_t step = 0; step < words; ++step) {
    const V b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; ++i) {
      const V factor = hn::Set(d, a[i * a_row]);
      left[i] = MultiplyAdd(d, factor, b0, left[i]);
      right[i] = MultiplyAdd(d, factor, b1, right[i]);
    }
    ++a;
    b += 2 * lanes;
  }
  HWY_ALIGN float edge[2 * HWY_MAX_BYTES / sizeof(float)];
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) {
    float* row = width == 2 * lanes ? finish.c + i * finish.stride : edge;
    hn::StoreU(Finished(d, left[i], finish.a_scales[i], finish, 0), df, row);
    hn::StoreU(Finished(d, right[i], finish.a_scales[i], finish, lanes), df, row + lanes);
    if (row == edge) std::copy_n(edge, width, finish.c + i * finish.stride);
  }
}

using MicroFunction = void (*)(std::int64_t, const std::int32_t*, std::int64_t, const std::int32_t*,
                               const Int8Epilogue&, std::int64_t);

// Multiplies `rows` rows by one panel of columns, of which `width` exist.
void Panel(std::int64_t rows, std::int64_t width, std::int64_t words, const std::int32_t* a,
           std::int64_t a_row, const std::int32_t* b, Int8Epilogue finish) {
  static constexpr auto kTable = []<int... ROW>(std::integer_sequence<int, ROW...>) {
    return std::array<MicroFunction, kRows>{Micro<ROW + 1>...};
  }
  (std::make_integer_sequence<int, kRows>());
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t count = std::min<std::int64_t>(kRows, rows - i);
    kTable[static_cast<std::size_t>(count - 1)](words, a + i * a_row, a_row, b, finish, width);
    finish.a_scales += count;
    finish.c += count * finish.stride;
  }
}

// --- quantize_rows -----------------------------------------------------------------------------------------

void Quantize(const float* x, std::int64_t count, float inverse, std::int8_t* into) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int8_t, decltype(d)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, inverse);
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor))), d8, into + i);
#endif
  for (; i < count; ++i) into[i] = static_cast<std::int8_t>(std::nearbyint(x[i] * inverse));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Rows);
HWY_EXPORT(Columns);
HWY_EXPORT(Steps);
HWY_EXPORT(PackRow);
HWY_EXPORT(Correction);
HWY_EXPORT(Panel);
HWY_EXPORT(FinishPanel);
HWY_EXPORT(Quantize);

namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

struct Int8Work {
  std::int32_t m, n, k, tile_m, tile_n, has_bias;
  std::uint32_t dtype;  // of c
};

// Bindings a, a_scales, b, b_scales, bias or b_scales again, c. Items: tiles of rows x tiles of columns.
void run_int8_matmul(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<Int8Work>(args.constants);
  const std::int64_t k = work.k, n = work.n, steps = HWY_DYNAMIC_DISPATCH(Steps)(),
                     words = ceil_div(k, steps), columns = HWY_DYNAMIC_DISPATCH(Columns)(),
                     tiles_m = ceil_div(work.m, work.tile_m);
  const auto dtype = static_cast<hal::DType>(work.dtype);
  const bool on_amx = steps == 4 && columns == kAmxPanelColumns && has_amx(AmxProduct::u8s8);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item % tiles_m * work.tile_m, column = item / tiles_m * work.tile_n;
    const std::int64_t rows = std::min<std::int64_t>(work.tile_m, work.m - row),
                       width = std::min<std::int64_t>(work.tile_n, n - column),
                       whole = round_up(width, columns);
    const bool low_precision_result = dtype != hal::DType::f32;
    const auto [left_words, line_words, panel_words, correction_words, b_scales, bias, wide_c, sum_words] =
        thread_scratch({rows * words, columns * words, columns * words, whole, whole, whole,
                        low_precision_result ? rows * width : 0, on_amx ? rows * columns : 0});
    auto *left = reinterpret_cast<std::int32_t*>(left_words),
         *lines = reinterpret_cast<std::int32_t*>(line_words),
         *panel = reinterpret_cast<std::int32_t*>(panel_words),
         *corrections = reinterpret_cast<std::int32_t*>(correction_words);
    for (std::int64_t i = 0; i < rows; ++i)
      HWY_DYNAMIC_DISPATCH(PackRow)(args.at<std::int8_t>(0) + (row + i) * k, k, true, left + i * words);
    // Columns beyond the last one are zeros.
    std::fill(std::copy_n(args.at(3) + column, width, b_scales), b_scales + whole, 0.0f);
    if (work.has_bias) std::fill(std::copy_n(args.at(4) + column, width, bias), bias + whole, 0.0f);
    float* c = low_precision_result ? wide_c : args.at(5) + row * n + column;
    const std::int64_t stride = low_precision_result ? width : n;
    for (std::int64_t j = 0; j < whole; j += columns) {
      const std::int64_t present = std::min(columns, width - j);
      for (std::int64_t i = 0; i < columns; ++i) {
        const std::int8_t* from = args.at<std::int8_t>(2) + (column + j + i) * k;
        corrections[j + i] = i < present ? HWY_DYNAMIC_DISPATCH(Correction)(from, k) : 0;
        if (i < present)
          HWY_DYNAMIC_DISPATCH(PackRow)(from, k, false, lines + i * words);
        else
          std::fill_n(lines + i * words, words, 0);
      }
      // Words are moved as if they were floats, without changing a bit.
      transpose(reinterpret_cast<const float*>(lines), words, columns, words, reinterpret_cast<float*>(panel),
                columns);
      const Int8Epilogue finish{args.at(1) + row, b_scales + j, work.has_bias ? bias + j : nullptr,
                                corrections + j,  c + j,        stride};
      if (on_amx) {
        auto* sums = reinterpret_cast<std::int32_t*>(sum_words);
        amx_gemm(AmxProduct::u8s8, rows, columns, words, {left, words, panel, columns, 0, sums, columns},
                 false);
        HWY_DYNAMIC_DISPATCH(FinishPanel)(rows, present, sums, finish);
      } else {
        HWY_DYNAMIC_DISPATCH(Panel)(rows, present, words, left, words, panel, finish);
      }
    }
    if (low_precision_result)
      for (std::int64_t i = 0; i < rows; ++i)
        narrow(c + i * width, width, dtype,
               args.at<std::byte>(5) +
                   ((row + i) * n + column) * static_cast<std::int64_t>(hal::size_of(dtype)));
  }
}

// Bindings x, q, scales. Items: rows.
void run_quantize_rows(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t columns = constants.integer();
  RowsIn in(args, 0, constants.dtype());
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = in.row(r * columns, columns);
    auto* q = args.at<std::int8_t>(1) + r * columns;
    const float inverse = kernels::inverse_scale(max_abs(x, columns));
    args.at(2)[r] = inverse == 0 ? 1.0f : 1.0f / inverse;
    if (inverse > 0)
      HWY_DYNAMIC_DISPATCH(Quantize)(x, columns, inverse, q);
    else
      std::fill_n(q, columns, std::int8_t{0});
  }
}

// Bindings q, scales, y. Items: rows.
void run_dequantize_rows(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const std::int64_t columns = ConstantReader(args).integer();
  for (std::int64_t r = begin; r < end; ++r) {
    const auto* q = args.at<std::int8_t>(0) + r * columns;
    const float scale = args.at(1)[r];
    std::transform(q, q + columns, args.at(2) + r * columns, [=](std::int8_t code) { return code * scale; });
  }
}

std::string too_large(const CallView& call) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types)
      for (const std::int64_t dim : type.shape)
        if (dim >= std::int64_t{1} << 31) return "a dimension of " + std::to_string(dim) + " exceeds 32 bits";
  return {};
}

// Tiles so wide that packing the left side takes little of the time, and so many that every core has some.
Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = too_large(call); !no.empty()) return Fit::no(std::move(no));
  const kernels::Int8MatmulDims d = kernels::int8_matmul_dims(call);
  const std::int64_t wanted = 4 * std::clamp(target.profile.cores, 1, 64);
  std::int64_t tile_m = 384, tile_n = 512;
  while (ceil_div(d.m, tile_m) * ceil_div(d.n, tile_n) < wanted && (tile_m > 48 || tile_n > 64))
    if (tile_n > 64 && (tile_n >= tile_m || tile_m <= 48))
      tile_n /= 2;
    else
      tile_m /= 2;
  return Fit::yes({{"tile_m", std::min(tile_m, d.m)}, {"tile_n", std::min(tile_n, d.n)}});
}

void encode(const EncodeArgs& args) {
  const kernels::Int8MatmulDims d = kernels::int8_matmul_dims(args.call);
  Int8Work work{};
  work.m = static_cast<std::int32_t>(d.m);
  work.n = static_cast<std::int32_t>(d.n);
  work.k = static_cast<std::int32_t>(d.k);
  work.tile_m = static_cast<std::int32_t>(args.choice.params.at("tile_m"));
  work.tile_n = static_cast<std::int32_t>(args.choice.params.at("tile_n"));
  work.has_bias = d.bias >= 0;
  work.dtype = static_cast<std::uint32_t>(args.call.outputs[0].dtype);
  Constants constants;
  for (const hal::Word word : to_words(work)) constants.word(word.u);
  record(args, "int8_matmul", ceil_div(d.m, work.tile_m) * ceil_div(d.n, work.tile_n),
         {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]), reads(args.inputs[3]),
          reads(args.inputs[work.has_bias ? 4u : 3u]), writes(args.outputs[0])},
         constants);
}

Fit fit_quantize(const CallView& call, const hal::DeviceInfo&) {
  std::string no = too_large(call);
  return no.empty() ? Fit::yes() : Fit::no(std::move(no));
}

void encode_quantize(const EncodeArgs& args) {
  const kernels::TensorType& x = args.call.inputs[0];
  record(args, "quantize_rows", x.dim(0),
         {reads(args.inputs[0]), writes(args.outputs[0]), writes(args.outputs[1])},
         Constants().integer(x.dim(1)).dtype(x.dtype));
}

void encode_dequantize(const EncodeArgs& args) {
  const kernels::TensorType& q = args.call.inputs[0];
  record(args, "dequantize_rows", q.dim(0),
         {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
         Constants().integer(q.dim(1)));
}

}  // namespace

Ops int8_matmul_ops() {
  return {{{"int8_matmul", run_int8_matmul},
           {"quantize_rows", run_quantize_rows},
           {"dequantize_rows", run_dequantize_rows}},
          {{"int8_matmul",
            {low_precision_variant("register blocks over packed words of two or four int8", fit, encode)}},
           {"quantize_rows",
            {low_precision_variant("a row at a time in vectors", fit_quantize, encode_quantize)}},
           {"dequantize_rows", {simd_variant("a row at a time", fit_quantize, encode_dequantize)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
