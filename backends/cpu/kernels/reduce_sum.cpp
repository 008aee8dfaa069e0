// Sums in a fixed order: column sums by blocks of rows, full sums by chunks, then the partial sums in order.
#include <algorithm>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/partial_sums.h"
#include "hal/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/reduce_sum.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// out(c) = sum over rows of x(row, c) for c < columns; rows are `stride` floats apart. Groups of 32 rows are summed
// first, so that rounding errors grow with the number of groups rather than of rows.
void SumRows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* out) {
  Over(columns, [=](auto d, std::int64_t c) {
    auto total = hn::Zero(d);
    for (std::int64_t first = 0; first < rows; first += 32) {
      auto sum = hn::Zero(d);
      for (std::int64_t row = first; row < std::min(rows, first + 32); ++row)
        sum = hn::Add(sum, hn::LoadU(d, x + row * stride + c));
      total = hn::Add(total, sum);
    }
    hn::StoreU(total, d, out + c);
  });
}

float Sum(const float* x, std::int64_t n) {
  return SumOver(n, [x](auto d, std::int64_t i) { return hn::LoadU(d, x + i); });
}

float SumOfSquares(const float* x, std::int64_t n) {
  return SumOver(n, [x](auto d, std::int64_t i) {
    const auto v = hn::LoadU(d, x + i);
    return hn::Mul(v, v);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(SumRows);
HWY_EXPORT(Sum);
HWY_EXPORT(SumOfSquares);

namespace {

constexpr std::int64_t kColumns = 256;    // per work item
constexpr std::int64_t kPiece = 1024;     // floats summed in f32 before they are added in double
constexpr std::int64_t kChunk = 1 << 15;  // floats per work item of a full sum

// Bindings x (rows, columns), out (row blocks, columns); items: blocks of columns fastest, then blocks of
// rows.
void run_sum_rows(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t rows = constants.integer(), columns = constants.integer(), size = constants.integer();
  const auto sum_rows = HWY_DYNAMIC_DISPATCH(SumRows);
  const std::int64_t across = hal::ceil_div(columns, kColumns);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t block = item / across, column = item % across * kColumns, row = block * size;
    sum_rows(args.at(0) + row * columns + column, columns, std::min(size, rows - row),
             std::min(kColumns, columns - column), args.at(1) + block * columns + column);
  }
}

// Bindings x, partials (chunks) f64; an item is a chunk.
void sum_chunks(const KernelArgs& args, std::uint32_t begin, std::uint32_t end,
                float (*sum)(const float*, std::int64_t)) {
  const std::int64_t n = ConstantReader(args).integer();
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    double total = 0;
    for (std::int64_t i = chunk * kChunk; i < std::min(n, (chunk + 1) * kChunk); i += kPiece)
      total += sum(args.at(0) + i, std::min(kPiece, n - i));
    args.at<double>(1)[chunk] = total;
  }
}
void run_sum_chunks(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  sum_chunks(args, begin, end, HWY_DYNAMIC_DISPATCH(Sum));
}
void run_square_sum_chunks(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  sum_chunks(args, begin, end, HWY_DYNAMIC_DISPATCH(SumOfSquares));
}

// Bindings partials f64, out (1) f32; one item.
void run_sum_of_chunks(const KernelArgs& args, std::uint32_t, std::uint32_t, int) {
  const std::int64_t count = ConstantReader(args).integer();
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += args.at<const double>(0)[i];
  args.at(1)[0] = static_cast<float>(total);
}

struct Shape2 {
  std::int64_t rows, columns;
};
Shape2 shape_of(const kernels::CallView& call) {
  const std::int64_t columns = call.outputs[0].elements();
  return {call.inputs[0].elements() / columns, columns};
}
std::int64_t chunks_of(const kernels::CallView& call) {
  return hal::ceil_div(call.inputs[0].elements(), kChunk);
}

kernels::Fit fit_all(const kernels::CallView& call, const hal::DeviceInfo&) {
  std::string reason = refusal(call);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  return kernels::Fit::yes({}, chunks_of(call) * 8);
}

kernels::Fit fit_sum(const kernels::CallView& call, const hal::DeviceInfo& target) {
  const auto [rows, columns] = shape_of(call);
  if (columns == 1) return fit_all(call, target);
  std::string reason = refusal(call);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  const RowBlocks blocks = row_blocks(rows);
  return kernels::Fit::yes({}, blocks.count == 1 ? 0 : blocks.count * columns * 4);
}

void encode_all(const kernels::EncodeArgs& args, const char* kernel) {
  record(args, kernel, chunks_of(args.call), {reads(args.inputs[0]), writes(args.workspace)},
         Constants().integer(args.call.inputs[0].elements()));
  args.commands.barrier();
  record(args, "sum_of_chunks", 1, {reads(args.workspace), writes(args.outputs[0])},
         Constants().integer(chunks_of(args.call)));
}

void encode_square_sum(const kernels::EncodeArgs& args) { encode_all(args, "square_sum_chunks"); }

void encode_sum(const kernels::EncodeArgs& args) {
  const auto [rows, columns] = shape_of(args.call);
  if (columns == 1) return encode_all(args, "sum_chunks");
  const RowBlocks blocks = row_blocks(rows);
  const bool direct = blocks.count == 1;
  record(args, "sum_rows", blocks.count * hal::ceil_div(columns, kColumns),
         {reads(args.inputs[0]), writes(direct ? args.outputs[0] : args.workspace)},
         Constants().integer(rows).integer(columns).integer(blocks.size));
  if (direct) return;
  args.commands.barrier();
  record_partial_sums(args, args.workspace, args.outputs[0], blocks.count, columns);
}

}  // namespace

void record_partial_sums(const kernels::EncodeArgs& args, const hal::Binding& partials,
                         const hal::Binding& out, std::int64_t blocks, std::int64_t columns) {
  record(args, "sum_rows", hal::ceil_div(columns, kColumns), {reads(partials), writes(out)},
         Constants().integer(blocks).integer(columns).integer(blocks));
}

Ops reduce_sum_ops() {
  return {
      {{"sum_rows", run_sum_rows},
       {"sum_chunks", run_sum_chunks},
       {"square_sum_chunks", run_square_sum_chunks},
       {"sum_of_chunks", run_sum_of_chunks}},
      {{"reduce_sum",
        {simd_variant("fixed blocks of rows in parallel, then the blocks in order", fit_sum, encode_sum)}},
       {"square_sum",
        {simd_variant("fixed chunks in parallel, added in double", fit_all, encode_square_sum)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
