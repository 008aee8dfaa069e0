// Products with weights in blocks, their values, and rows of a table of them.
#include "kernels/block_quantized/block_quantized.h"

#include <algorithm>
#include <limits>

#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/kernels/block_quantized/block_panels.h"
#include "backends/cpu/kernels/block_quantized/block_quantized_few_rows.h"
#include "backends/cpu/kernels/block_quantized/block_quantized_int8.h"
#include "backends/cpu/kernels/block_quantized/dequantize_blocks.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/rows.h"
#include "kernels/embedding/embedding.h"

namespace meshloom::backends::cpu {
namespace {

using kernels::BlockQuantizedDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::string too_large(const CallView& call) {
  const BlockQuantizedDims d = kernels::block_quantized_dims(call);
  const std::int64_t most = std::max({d.m, d.n, d.k});
  return most > std::numeric_limits<std::int32_t>::max()
             ? "a dimension of " + std::to_string(most) + " exceeds 32 bits"
             : "";
}

// More rows of x are multiplied for longer than W's rows are read.
constexpr std::int64_t kMaxStreamedRows = 8;

// Runs of panels so long that few begin with a panel that nobody has asked for, and so short that cores end together. Where a core gets one
// run, a work item is a panel.
std::int64_t panels_per_item(std::int64_t rows, std::int64_t panels, std::int64_t tiles,
                             const hal::DeviceInfo& target) {
  if (rows <= kMaxStreamedRows) return 1;
  constexpr std::int64_t kItemsPerCore = 3, kMaxPanels = 16;
  const std::int64_t items = kItemsPerCore * std::max(target.profile.cores, 1);
  return std::clamp<std::int64_t>(panels * tiles / items, 1, kMaxPanels);
}

// Rows of x are shared by so many work items that every core has some.
Fit fit_int8(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = too_large(call); !no.empty()) return Fit::no(std::move(no));
  const BlockQuantizedDims d = kernels::block_quantized_dims(call);
  if (!d.int8) return Fit::no("needs activations int8");
  constexpr std::int64_t kMinRows = 48;  // per tile: fewer would be unpacking most of the time
  const std::int64_t panels = ceil_div(d.n, block_panel_rows()),
                     wanted = 4 * std::clamp(target.profile.cores, 1, 64);
  std::int64_t tile_m = std::min<std::int64_t>(d.m, 512);
  while (tile_m > kMinRows && ceil_div(d.m, tile_m) * panels < wanted) tile_m = round_up(tile_m / 2, 6);
  return Fit::yes(
      {{"tile_m", tile_m}, {"panels", panels_per_item(d.m, panels, ceil_div(d.m, tile_m), target)}},
      d.m * RoundedRow::size(d.k) * 4);
}

Constants panel_constants(const EncodeArgs& args) {
  const BlockQuantizedDims d = kernels::block_quantized_dims(args.call);
  BlockWork work{};
  work.m = static_cast<std::int32_t>(d.m);
  work.n = static_cast<std::int32_t>(d.n);
  work.k = static_cast<std::int32_t>(d.k);
  work.tile_m = static_cast<std::int32_t>(args.choice.params.at("tile_m"));
  work.panels = static_cast<std::int32_t>(args.choice.params.at("panels"));
  work.has_bias = d.bias >= 0;
  work.has_residual = d.residual >= 0;
  work.format = static_cast<std::uint32_t>(d.format->id);
  work.dtype = static_cast<std::uint32_t>(args.call.inputs[0].dtype);
  Constants constants;
  for (const hal::Word word : to_words(work)) constants.word(word.u);
  return constants;
}

// Records a kernel of panels, which reads `x`; of few rows the one of that name that gives each thread one run.
void encode_panels(const EncodeArgs& args, std::string kernel, const hal::Binding& x,
                   std::int64_t panel_rows) {
  const BlockQuantizedDims d = kernels::block_quantized_dims(args.call);
  if (d.m <= kMaxStreamedRows) kernel += "_streamed";
  const auto& p = args.choice.params;
  const std::int64_t panels = ceil_div(d.n, panel_rows);
  const auto given = [&](int index) {
    return reads(args.inputs[index < 0 ? 1 : static_cast<std::size_t>(index)]);
  };
  record(args, kernel.c_str(), ceil_div(d.m, p.at("tile_m")) * ceil_div(panels, p.at("panels")),
         {reads(x), reads(args.inputs[1]), given(d.bias), given(d.residual), writes(args.outputs[0])},
         panel_constants(args));
}

void encode_int8(const EncodeArgs& args) {
  record(args, "block_quantized_round", args.call.inputs[0].dim(0),
         {reads(args.inputs[0]), writes(args.workspace)}, panel_constants(args));
  args.commands.barrier();
  encode_panels(args, "block_quantized_int8", args.workspace, block_panel_rows());
}

// --- float activations -------------------------------------------------------------------------------------

MatmulWork work_of(const CallView& call) {
  const BlockQuantizedDims d = kernels::block_quantized_dims(call);
  MatmulWork work{};
  work.g = 1;
  work.m = static_cast<std::int32_t>(d.m);
  work.n = static_cast<std::int32_t>(d.n);
  work.k = static_cast<std::int32_t>(d.k);
  work.trans_b = 1;
  work.has_bias = d.bias >= 0;
  work.has_residual = d.residual >= 0;
  work.dtype = call.inputs[0].dtype;
  work.result = call.outputs[0].dtype;
  work.block_format = static_cast<std::uint8_t>(1 + static_cast<int>(d.format->id));
  return work;
}

Fit fit_packed(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = too_large(call); !no.empty()) return Fit::no(std::move(no));
  if (kernels::block_quantized_dims(call).int8) return Fit::no("needs activations float");
  return fit_packed_slabs(work_of(call), target);
}

// More rows repay the packing of W.
constexpr std::int64_t kFewRows = 32;

Fit fit_few_rows(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = too_large(call); !no.empty()) return Fit::no(std::move(no));
  const BlockQuantizedDims d = kernels::block_quantized_dims(call);
  if (d.int8) return Fit::no("needs activations float");
  if (d.m > kFewRows)
    return Fit::no("takes at most " + std::to_string(kFewRows) + " rows, not " + std::to_string(d.m));
  return Fit::yes(
      {{"tile_m", d.m}, {"panels", panels_per_item(d.m, ceil_div(d.n, few_rows_panel_rows()), 1, target)}});
}

void encode_few_rows(const EncodeArgs& args) {
  encode_panels(args, "block_quantized_few_rows", args.inputs[0], few_rows_panel_rows());
}

void encode_packed(const EncodeArgs& args) {
  MatmulWork work = work_of(args.call);
  set_tiles(args.choice, work);
  record(args, "matmul_packed",
         {static_cast<std::uint32_t>(work.tiles_m()), static_cast<std::uint32_t>(work.tiles_n()), 1},
         to_words(work));
}

// --- values and rows ---------------------------------------------------------------------------------------

constexpr std::int64_t kRowsPerItem = 16;

// Bindings w, values.
void run_dequantize(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t rows = constants.integer(), columns = constants.integer();
  const auto& format = kernels::block_quantized::format_of(
      static_cast<kernels::block_quantized::FormatId>(constants.integer()));
  const std::int64_t first = begin * kRowsPerItem, last = std::min(end * kRowsPerItem, rows);
  dequantize_blocks(
      format, args.at<const std::uint8_t>(0) + first * kernels::block_quantized::row_bytes(format, columns),
      0, (last - first) * columns, args.at(1) + first * columns);
}

Fit fit_dequantize(const CallView&, const hal::DeviceInfo&) { return Fit::yes(); }

void encode_dequantize(const EncodeArgs& args) {
  const std::int64_t columns = args.call.outputs[0].dim(-1), rows = args.call.outputs[0].elements() / columns;
  record(args, "block_dequantize", ceil_div(rows, kRowsPerItem),
         {reads(args.inputs[0]), writes(args.outputs[0])},
         Constants().integer(rows).integer(columns).integer(
             static_cast<std::int64_t>(kernels::block_format(args.call).id)));
}

// Bindings w, ids, y; an item is an id.
void run_embedding(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t rows = constants.integer(), columns = constants.integer(), first = constants.integer();
  const auto& format = kernels::block_quantized::format_of(
      static_cast<kernels::block_quantized::FormatId>(constants.integer()));
  RowsOut y(args, 2, constants.dtype());
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t id = args.at<const std::int32_t>(1)[i] - first;
    float* row = y.row(i * columns, columns);
    if (id >= 0 && id < rows)
      dequantize_blocks(
          format, args.at<const std::uint8_t>(0) + id * kernels::block_quantized::row_bytes(format, columns),
          0, columns, row);
    else
      std::fill_n(row, columns, 0.0f);
    y.done();
  }
}

void encode_embedding(const EncodeArgs& args) {
  record(args, "block_quantized_embedding", args.call.inputs[1].elements(),
         {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
         Constants()
             .integer(args.call.inputs[0].dim(0))
             .integer(args.call.outputs[0].dim(-1))
             .integer(kernels::embedding_first(args.call))
             .integer(static_cast<std::int64_t>(kernels::block_format(args.call).id))
             .dtype(args.call.outputs[0].dtype));
}

}  // namespace

Ops block_quantized_ops() {
  return {{{"block_quantized_round", run_block_quantized_round},
           {"block_quantized_int8", run_block_quantized_int8},
           {"block_quantized_int8_streamed", run_block_quantized_int8, Schedule::even},
           {"block_quantized_few_rows", run_block_quantized_few_rows},
           {"block_quantized_few_rows_streamed", run_block_quantized_few_rows, Schedule::even},
           {"block_dequantize", run_dequantize},
           {"block_quantized_embedding", run_embedding}},
          {{"block_quantized_matmul",
            {{.name = "int8",
              .about = "weights are unpacked into the cache once, as bytes that are multiplied four at a "
                       "time, so that "
                       "few rows take the time of reading the weights",
              .fit = fit_int8,
              .encode = encode_int8,
              .low_precision = true,
              .row_exact = true},
             {.name = "few_rows",
              .about =
                  "few rows of floats: weights are unpacked into the cache once and dequantized in registers",
              .fit = fit_few_rows,
              .encode = encode_few_rows,
              .low_precision = true,
              .row_exact = true},
             {.name = "packed",
              .about = "the packed matmul; weights are dequantized block by block in cache",
              .fit = fit_packed,
              .encode = encode_packed,
              .low_precision = true,
              .row_exact = true}}},
           {"block_dequantize", {simd_variant("16 rows per work item", fit_dequantize, encode_dequantize)}},
           {"block_quantized_embedding",
            {low_precision_variant("rows in parallel", fit_dequantize, encode_embedding)}}}};
}

}  // namespace meshloom::backends::cpu
