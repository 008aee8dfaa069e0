// Products with NF4 weights: the packed matmul, which dequantizes its right side block by block, or few_rows.
#include "kernels/nf4_matmul/nf4_matmul.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/quantized/dequantize_nf4.h"
#include "backends/cpu/kernels/quantized/max_abs.h"
#include "backends/cpu/kernels/rows.h"
#include "kernels/nf4_matmul/nf4.h"

namespace meshloom::backends::cpu {
namespace {

MatmulWork work_of(const kernels::CallView& call) {
  const kernels::Nf4MatmulDims d = kernels::nf4_matmul_dims(call);
  MatmulWork work{};
  work.g = 1;
  work.m = static_cast<std::int32_t>(d.m);
  work.n = static_cast<std::int32_t>(d.n);
  work.k = static_cast<std::int32_t>(d.k);
  work.trans_b = d.trans_b;
  work.has_bias = d.bias >= 0;
  work.has_residual = d.residual >= 0;
  work.dtype = call.inputs[0].dtype;
  work.result = call.outputs[0].dtype;
  work.nf4 = d.steps >= 0 ? 2 : 1;
  work.block = static_cast<std::int32_t>(d.block);
  return work;
}

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo& target) {
  const kernels::Nf4MatmulDims d = kernels::nf4_matmul_dims(call);
  const std::int64_t max_dim = std::max({d.m, d.n, d.k, d.block});
  if (max_dim > std::numeric_limits<std::int32_t>::max())
    return kernels::Fit::no("a dimension of " + std::to_string(max_dim) + " exceeds 32 bits");
  return fit_packed_slabs(work_of(call), target);
}

kernels::Fit fit_few_rows(const kernels::CallView& call, const hal::DeviceInfo& target) {
  if (kernels::Fit packed = fit(call, target); !packed.ok) return packed;
  constexpr std::int64_t kMaxRows = 12;     // of x
  constexpr std::int64_t kWeightRows = 16;  // per work item
  const kernels::Nf4MatmulDims d = kernels::nf4_matmul_dims(call);
  if (call.inputs[0].dtype != hal::DType::f32)
    return kernels::Fit::no("computes f32 only, not " + std::string(hal::to_string(call.inputs[0].dtype)));
  if (!d.trans_b) return kernels::Fit::no("needs weights whose rows give one output each (trans_b)");
  if (d.m > kMaxRows)
    return kernels::Fit::no("takes at most " + std::to_string(kMaxRows) + " rows, not " +
                            std::to_string(d.m));
  return kernels::Fit::yes({{"tile_m", d.m}, {"tile_n", kWeightRows}});
}

void encode_as(const kernels::EncodeArgs& args, const char* kernel) {
  MatmulWork work = work_of(args.call);
  set_tiles(args.choice, work);
  // x, codes, the bias if any, the residual if any, scales, their steps if any
  std::vector<hal::Binding> inputs(args.inputs.begin(), args.inputs.end());
  std::rotate(inputs.begin() + 2, inputs.begin() + 2 + work.nf4, inputs.end());
  record({args.call, args.choice, args.device, args.commands, inputs, args.outputs, {}, args.label}, kernel,
         {static_cast<std::uint32_t>(work.tiles_m()), static_cast<std::uint32_t>(work.tiles_n()), 1},
         to_words(work));
}

void encode(const kernels::EncodeArgs& args) { encode_as(args, "matmul_packed"); }
void encode_few_rows(const kernels::EncodeArgs& args) { encode_as(args, "nf4_matmul_few_rows"); }

constexpr std::int64_t kUnpackRows = 16;  // per work item

// Bindings: codes, scales, the rows, then the steps of quantized scales if there are any.
void run_unpack(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t rows = constants.integer(), columns = constants.integer(), block = constants.integer();
  const bool twice = constants.integer() != 0;
  RowsOut out(args, 2, constants.dtype());
  const Nf4Weights weights = nf4_weights(args.at<const std::uint8_t>(0), args.at<const std::byte>(1),
                                         twice ? args.at<const float>(3) : nullptr, columns, block);
  for (std::int64_t r = begin * kUnpackRows; r < std::min(end * kUnpackRows, rows); ++r) {
    dequantize_nf4(weights.from(r, 0), columns, out.row(r * columns, columns));
    out.done();
  }
}

kernels::Fit fit_unpack(const kernels::CallView&, const hal::DeviceInfo&) { return kernels::Fit::yes(); }

void encode_unpack(const kernels::EncodeArgs& args) {
  const kernels::Nf4UnpackDims d = kernels::nf4_unpack_dims(args.call);
  Constants constants;
  constants.integer(d.rows).integer(d.columns).integer(d.block).integer(d.twice).dtype(
      args.call.outputs[0].dtype);
  const std::int64_t items = ceil_div(d.rows, kUnpackRows);
  const hal::Binding codes = reads(args.inputs[0]), scales = reads(args.inputs[1]),
                     to = writes(args.outputs[0]);
  if (d.twice)
    record(args, "nf4_unpack", items, {codes, scales, to, reads(args.inputs[2])}, constants);
  else
    record(args, "nf4_unpack", items, {codes, scales, to}, constants);
}

// Bindings x, codes, scales. Items: rows.
void run_pack(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  namespace nf4 = kernels::nf4;
  ConstantReader constants(args);
  const std::int64_t columns = constants.integer(), block = constants.integer();
  const std::int64_t bytes = nf4::row_bytes(columns), blocks = nf4::blocks(columns, block);
  RowsIn in(args, 0, constants.dtype());
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = in.row(r * columns, columns);
    std::uint8_t* codes = args.at<std::uint8_t>(1) + r * bytes;
    std::fill_n(codes, bytes, std::uint8_t{0});
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t first = b * block, last = std::min(first + block, columns);
      const float scale = args.at(2)[r * blocks + b] = nf4::rounded_scale(max_abs(x + first, last - first));
      for (std::int64_t c = first; c < last; ++c)
        codes[c / 2] |= static_cast<std::uint8_t>(nf4::rounded_code(x[c], scale) << (c % 2 * 4));
    }
  }
}

kernels::Fit fit_pack(const kernels::CallView&, const hal::DeviceInfo&) { return kernels::Fit::yes(); }

void encode_pack(const kernels::EncodeArgs& args) {
  const kernels::Nf4PackDims d = kernels::nf4_pack_dims(args.call);
  record(args, "nf4_pack", d.rows, {reads(args.inputs[0]), writes(args.outputs[0]), writes(args.outputs[1])},
         Constants().integer(d.columns).integer(d.block).dtype(args.call.inputs[0].dtype));
}

}  // namespace

Ops nf4_matmul_ops() {
  return {
      {{"nf4_matmul_few_rows", run_nf4_matmul_few_rows}, {"nf4_unpack", run_unpack}, {"nf4_pack", run_pack}},
      {{"nf4_matmul",
        {{.name = "few_rows",
          .about = "few rows: every weight is read once and dequantized in registers, so memory "
                   "traffic is 4 bits per weight",
          .fit = fit_few_rows,
          .encode = encode_few_rows},
         {.name = "packed",
          .about = "the packed matmul; weights are dequantized block by block in cache",
          .fit = fit,
          .encode = encode,
          .low_precision = true,
          .row_exact = true}}},
       {"nf4_unpack",
        {low_precision_variant("16 rows per work item, 32 codes at a time", fit_unpack, encode_unpack)}},
       {"nf4_pack", {low_precision_variant("a row at a time", fit_pack, encode_pack)}}}};
}

}  // namespace meshloom::backends::cpu
