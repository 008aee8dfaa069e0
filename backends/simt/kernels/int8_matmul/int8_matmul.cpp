// Rows to eight-bit integers, and their exact products.
#include "kernels/int8_matmul/int8_matmul.h"

#include "backends/simt/kernels/matmul/matmul.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::Int8MatmulDims;

struct Tile {
  std::int64_t bm, bn, tm, tn, depth;  // depth in words
  std::int64_t workgroup() const { return (bm / tm) * (bn / tn); }
  std::int64_t shared_bytes() const { return 4 * depth * (bm + 4 + bn + 4); }
  std::array<std::int64_t, 3> groups(const Int8MatmulDims& d) const {
    return {ceil_div(d.n, bn), ceil_div(d.m, bm), 1};
  }
};
// CPU drivers pay for every invocation that waits at a barrier. The larger of a GPU's tiles is for products that give all its
// cores one.
Tile tile_for(const Int8MatmulDims& d, const hal::DeviceInfo& target) {
  if (target.is_cpu) return {32, 32, 8, 4, 8};
  const Tile large{128, 128, 8, 8, 16};
  return large.groups(d)[0] * large.groups(d)[1] >= target.profile.cores &&
                 large.shared_bytes() <= workgroup_bytes(target) &&
                 large.workgroup() <= max_invocations(target)
             ? large
             : Tile{64, 64, 4, 4, 16};
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const Int8MatmulDims d = kernels::int8_matmul_dims(call);
  const Tile tile = tile_for(d, target);
  std::string reason = unsupported_size(call);
  if (reason.empty()) reason = unsupported_groups(target, tile.groups(d));
  const std::int64_t words = (tile.bm + tile.bn) * tile.depth / tile.workgroup();
  const std::int64_t step = words * (d.k % 4 == 0 ? 1 : 5) + tile.depth + 1;
  if (reason.empty())
    reason = unsupported_iterations(target, static_cast<double>(ceil_div(d.k, 4 * tile.depth) * step));
  if (reason.empty() && tile.workgroup() > target.limits.max_workgroup)
    reason = "workgroups have " + std::to_string(tile.workgroup()) + " invocations, the driver takes " +
             std::to_string(target.limits.max_workgroup);
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

// CPU drivers, which hold what is live at a barrier in memory, prefetch only where that is asked for.
std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  if (!target.is_cpu || !fit(call, target).ok) return {};
  return {Fit::yes({{"prefetch", 1}})};
}

void encode(const EncodeArgs& args) {
  const Int8MatmulDims d = kernels::int8_matmul_dims(args.call);
  const hal::DeviceInfo& device = args.device.info();
  const Tile tile = tile_for(d, device);
  const bool prefetch = !device.is_cpu || args.choice.params.count("prefetch") > 0;
  std::vector<hal::Define> defines{define("BM", tile.bm),
                                   define("BN", tile.bn),
                                   define("BK", tile.depth),
                                   define("TM", tile.tm),
                                   define("TN", tile.tn),
                                   define("LOAD_NUMBERS", int8_load_numbers(d.k)),
                                   define("WHOLE_STEPS", d.k % (4 * tile.depth) == 0),
                                   define("PREFETCH", prefetch),
                                   dot_define(device)};
  // Beside the sums, Intel's smaller register file has no room for what is on its way.
  if (device.backend == "opencl" && has_narrow_subgroups(device))
    defines.push_back(define("MOST_REGISTERS", 1));
  launch(args, {.kernel = "int8_matmul",
                .defines = std::move(defines),
                .width = static_cast<std::uint32_t>(tile.workgroup()),
                .groups = matmul_groups(tile.groups(d)),
                .bindings = int8_matmul_bindings(args),
                .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k),
                              hal::word(std::int64_t{d.bias >= 0})}});
}

Fit fit_quantize(const CallView& call, const hal::DeviceInfo& target) {
  const std::int64_t rows = call.inputs[0].dim(0), columns = call.inputs[0].dim(1);
  std::string reason = unsupported_size(call);
  if (reason.empty())
    reason = unsupported_iterations(target, static_cast<double>(columns) / row_width(target));
  return reason.empty() ? Fit::yes({}, 4 * rows) : Fit::no(reason);
}

void encode_quantize(const EncodeArgs& args) {
  const std::int64_t rows = args.call.inputs[0].dim(0), columns = args.call.inputs[0].dim(1);
  const std::uint32_t width = row_width(args.device.info());
  const hal::Binding inverses = slice(args.workspace, 0, 4 * rows);
  launch(args, {.kernel = "row_max_abs",
                .defines = {{"INT8", "1"}},
                .width = width,
                .groups = grid(rows, 1),
                .bindings = {reads(args.inputs[0]), writes(args.outputs[1]), writes(inverses)},
                .constants = {hal::word(columns), hal::word(rows)}});
  args.commands.barrier();
  launch(args, {.kernel = "quantize_values",
                .bindings = {reads(args.inputs[0]), reads(inverses), writes(whole_words(args.outputs[0]))},
                .constants = {hal::word(rows * columns), hal::word(columns)},
                .items = ceil_div(rows * columns, 4)});
}

void encode_dequantize(const EncodeArgs& args) {
  const std::int64_t rows = args.call.inputs[0].dim(0), columns = args.call.inputs[0].dim(1);
  launch(args,
         {.kernel = "dequantize_values",
          .bindings = {reads(whole_words(args.inputs[0])), reads(args.inputs[1]), writes(args.outputs[0])},
          .constants = {hal::word(rows * columns), hal::word(columns)},
          .items = rows * columns});
}

}  // namespace

std::int64_t int8_load_numbers(std::int64_t k) { return k % 16 == 0 ? 16 : k % 4 == 0 ? 4 : 0; }

std::vector<hal::Binding> int8_matmul_bindings(const EncodeArgs& args) {
  const bool bias = kernels::int8_matmul_dims(args.call).bias >= 0;
  return {reads(whole_words(args.inputs[0])), reads(args.inputs[1]),
          reads(whole_words(args.inputs[2])), reads(args.inputs[3]),
          reads(args.inputs[bias ? 4u : 3u]), writes(args.outputs[0])};
}

std::vector<kernels::OpVariants> int8_matmul_ops() {
  kernels::Variant tiles =
      simt_variant("tiles of words through workgroup memory, integer sums in registers", fit, encode);
  tiles.alternatives = alternatives;
  return {{"int8_matmul", {tiles}},
          {"quantize_rows",
           {simt_variant("a workgroup per row's scale, then four integers per invocation", fit_quantize,
                         encode_quantize)}},
          {"dequantize_rows", {simt_variant("an element per item", fit_any_dtype, encode_dequantize)}}};
}

}  // namespace meshloom::backends::simt
