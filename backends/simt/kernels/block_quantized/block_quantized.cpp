// Products with weights in blocks: matmul_gpu_tile, which widens B on its way into workgroup memory, and a kernel for few rows; values
// of such weights, and rows of a table of them.
#include "kernels/block_quantized/block_quantized.h"

#include "backends/simt/kernels/matmul/dequantized.h"
#include "backends/simt/kernels/matmul/matmul.h"
#include "kernels/embedding/embedding.h"

namespace meshloom::backends::simt {
namespace {

using kernels::BlockQuantizedDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

hal::Define format_define(const CallView& call) {
  return define("BLOCK_FORMAT", static_cast<std::int64_t>(kernels::block_format(call).id));
}

kernels::MatmulDims matmul_of(const BlockQuantizedDims& d) {
  return {.g = 1,
          .m = d.m,
          .n = d.n,
          .k = d.k,
          .trans_a = false,
          .trans_b = true,
          .bias = d.bias,
          .residual = d.residual,
          .activation = kernels::Activation::none};
}

// --- tiles -------------------------------------------------------------------------------------------------

// In the workspace, rounded activations come first.
std::int64_t rounded_bytes(const BlockQuantizedDims& d) { return d.int8 ? aligned(4 * d.m * d.k) : 0; }

Fit with_rounded(Fit fit, const BlockQuantizedDims& d) {
  fit.workspace_bytes += rounded_bytes(d);
  return fit;
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string no = unsupported_size(call); !no.empty()) return Fit::no(std::move(no));
  const BlockQuantizedDims d = kernels::block_quantized_dims(call);
  Fit found = gpu_tile_fit(matmul_of(d), target, {.more_per_column = 4});
  return found.ok ? with_rounded(std::move(found), d) : found;
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  if (!unsupported_size(call).empty()) return {};
  const BlockQuantizedDims d = kernels::block_quantized_dims(call);
  std::vector<Fit> all = gpu_tile_alternatives(matmul_of(d), target, {.more_per_column = 4});
  for (Fit& found : all) found = with_rounded(std::move(found), d);
  return all;
}

void encode(const EncodeArgs& args) {
  const BlockQuantizedDims d = kernels::block_quantized_dims(args.call);
  std::vector<hal::Binding> inputs(args.inputs.begin(), args.inputs.end());
  inputs[1] = whole_words(inputs[1]);
  hal::Binding sums = args.workspace;
  if (d.int8) {
    const hal::Binding rounded = slice(args.workspace, 0, 4 * d.m * d.k);
    launch(args, {.kernel = "block_round",
                  .defines = {{"VALUES", "1"}},
                  .bindings = {reads(inputs[0]), writes(rounded)},
                  .constants = {hal::word(d.m * d.k / kernels::kActivationBlock)},
                  .items = d.m * d.k / kernels::kActivationBlock});
    args.commands.barrier();
    inputs[0] = rounded;
    sums = slice(args.workspace, rounded_bytes(d), args.workspace.bytes - rounded_bytes(d));
  }
  encode_gpu_tile(
      {args.call, args.choice, args.device, args.commands, inputs, args.outputs, sums, args.label},
      matmul_of(d), {.defines = {format_define(args.call)}});
}

// --- few rows ----------------------------------------------------------------------------------------------

constexpr std::int64_t kWidth = 64, kColumns = 8, kMaxRows = 8;  // invocations and columns of a workgroup

// The workspace of rounded activations: integers, scales and sums.
struct Rounded {
  std::int64_t scales, sums, bytes;
};
Rounded rounded_of(const BlockQuantizedDims& d) {
  const std::int64_t scales = aligned(d.m * d.k), sums = scales + aligned(d.m * d.k / 8);
  return {scales, sums, sums + d.m * d.k / 4};
}

Fit fit_few_rows(const CallView& call, const hal::DeviceInfo& target) {
  const BlockQuantizedDims d = kernels::block_quantized_dims(call);
  std::string no = unsupported_size(call);
  if (no.empty() && d.m > kMaxRows)
    no = "takes at most " + std::to_string(kMaxRows) + " rows, not " + std::to_string(d.m);
  if (no.empty() && max_invocations(target) < kWidth)
    no = "needs workgroups of " + std::to_string(kWidth) + " invocations";
  const std::int64_t bytes = 4 * kWidth * d.m;
  if (no.empty() && bytes > workgroup_bytes(target))
    no = "needs " + std::to_string(bytes) + " bytes of workgroup memory; the device has " +
         std::to_string(workgroup_bytes(target));
  if (no.empty()) no = unsupported_groups(target, {ceil_div(d.n, kColumns), 1, 1});
  constexpr double kPerStep = 1 + 2 + 8;  // loops over rows are unrolled
  if (no.empty())
    no = unsupported_iterations(
        target, static_cast<double>(ceil_div(d.k / 32, kWidth / kColumns)) * kPerStep + kWidth);
  if (!no.empty()) return Fit::no(std::move(no));
  return Fit::yes({}, d.int8 ? rounded_of(d).bytes : 0);
}

void encode_few_rows(const EncodeArgs& args) {
  const BlockQuantizedDims d = kernels::block_quantized_dims(args.call);
  const hal::Binding weights = reads(whole_words(args.inputs[1]));
  const auto given = [&](int index) {
    return index < 0 ? weights : reads(args.inputs[static_cast<std::size_t>(index)]);
  };
  std::vector<hal::Binding> bindings{reads(args.inputs[0]), weights, given(d.bias), given(d.residual),
                                     writes(args.outputs[0])};
  if (d.int8) {
    const Rounded at = rounded_of(d);
    const std::int64_t runs = d.m * d.k / kernels::kActivationBlock;
    const hal::Binding codes = slice(args.workspace, 0, d.m * d.k),
                       scales = slice(args.workspace, at.scales, 4 * runs),
                       sums = slice(args.workspace, at.sums, 8 * runs);
    launch(args, {.kernel = "block_round",
                  .defines = {{"VALUES", "0"}},
                  .bindings = {reads(args.inputs[0]), writes(codes), writes(scales), writes(sums)},
                  .constants = {hal::word(runs)},
                  .items = runs});
    args.commands.barrier();
    bindings[0] = reads(codes);
    bindings.push_back(reads(scales));
    bindings.push_back(reads(sums));
  }
  launch(args, {.kernel = "block_few_rows",
                .defines = {format_define(args.call), define("INT8", d.int8), define("ROWS", d.m),
                            define("COLUMNS", kColumns), dot_define(args.device.info())},
                .width = static_cast<std::uint32_t>(kWidth),
                .groups = matmul_groups({ceil_div(d.n, kColumns), 1, 1}),
                .bindings = bindings,
                .constants = {hal::word(d.n), hal::word(d.k),
                              hal::word(std::int64_t{(d.bias >= 0 ? 1 : 0) + (d.residual >= 0 ? 2 : 0)})}});
}

// --- values and rows ---------------------------------------------------------------------------------------

void encode_values(const EncodeArgs& args) {
  const std::int64_t count = args.call.outputs[0].elements() / 4, columns = args.call.outputs[0].dim(-1);
  launch(args, {.kernel = "block_dequantize",
                .defines = {format_define(args.call), {"BY_ID", "0"}, {"Y_TYPE", "0"}},
                .bindings = {reads(whole_words(args.inputs[0])), writes(args.outputs[0])},
                .constants = {hal::word(count), hal::word(columns), hal::word(4 * count / columns),
                              hal::word(std::int64_t{0})},
                .items = count});
}

kernels::MatmulDims dims(const CallView& call) { return matmul_of(kernels::block_quantized_dims(call)); }
std::string unsupported_activations(const CallView& call) {
  return kernels::block_quantized_dims(call).int8
             ? "takes activations as floats, which are not rounded to int8"
             : "";
}
void dequantize(const EncodeArgs& args, hal::DType dtype, const hal::Binding& into) {
  const BlockQuantizedDims d = kernels::block_quantized_dims(args.call);
  launch(args,
         {.kernel = "block_dequantize",
          .defines = {format_define(args.call), {"BY_ID", "0"}, define("Y_TYPE", dtype_code(dtype))},
          .bindings = {reads(whole_words(args.inputs[1])), writes(into)},
          .constants = {hal::word(d.n * d.k / 8), hal::word(d.k), hal::word(d.n), hal::word(std::int64_t{0})},
          .items = d.n * d.k / 8});
}

void encode_rows(const EncodeArgs& args) {
  const std::int64_t count = args.call.outputs[0].elements() / 4, columns = args.call.outputs[0].dim(-1);
  launch(args,
         {.kernel = "block_dequantize",
          .defines = {format_define(args.call), {"BY_ID", "1"}, {"Y_TYPE", "0"}},
          .bindings = {reads(whole_words(args.inputs[0])), reads(args.inputs[1]), writes(args.outputs[0])},
          .constants = {hal::word(count), hal::word(columns), hal::word(args.call.inputs[0].dim(0)),
                        hal::word(kernels::embedding_first(args.call))},
          .items = count});
}

}  // namespace

const QuantizedWeights block_quantized_weights{dims, unsupported_activations, dequantize};

std::vector<kernels::OpVariants> block_quantized_ops() {
  return {
      {"block_quantized_matmul",
       {kernels::Variant{.name = "few_rows",
                         .kinds = {hal::ProfileKind::gpu},
                         .about = "few rows: the weights are read once, as words of four codes",
                         .fit = fit_few_rows,
                         .encode = encode_few_rows},
        kernels::Variant{.name = "gpu_tile",
                         .kinds = {},
                         .about = "tiles through workgroup memory, where weights in blocks arrive as floats",
                         .fit = fit,
                         .encode = encode,
                         .alternatives = alternatives}}},
      {"block_dequantize", {simt_variant("four weights per invocation", fit_any_dtype, encode_values)}},
      {"block_quantized_embedding",
       {simt_variant("four weights per invocation", fit_any_dtype, encode_rows)}}};
}

}  // namespace meshloom::backends::simt
