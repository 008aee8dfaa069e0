// Rounding to eight-bit floats.
#include "kernels/quantize_dequantize/quantize_dequantize.h"

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const std::int64_t rows = call.inputs[0].dim(0), columns = call.inputs[0].dim(1);
  std::string reason = unsupported_dtype(call);
  if (reason.empty())
    reason = unsupported_iterations(target, static_cast<double>(columns) / row_width(target));
  return reason.empty() ? Fit::yes({}, 4 * rows) : Fit::no(reason);
}

void encode(const EncodeArgs& args) {
  const std::int64_t rows = args.call.inputs[0].dim(0), columns = args.call.inputs[0].dim(1);
  const kernels::RoundingSteps steps = kernels::rounding_steps(kernels::rounding_format(args.call));
  const hal::Binding largest = slice(args.workspace, 0, 4 * rows);
  launch(args, {.kernel = "row_max_abs",
                .defines = {{"INT8", "0"}},
                .width = row_width(args.device.info()),
                .groups = grid(rows, 1),
                .bindings = {reads(args.inputs[0]), writes(largest)},
                .constants = {hal::word(columns), hal::word(rows)}});
  args.commands.barrier();
  launch(args, {.kernel = "round_values",
                .defines = {{"DROPPED", std::to_string(steps.dropped) + "u"},
                            {"SPAN", std::to_string(steps.span) + "u"}},
                .bindings = {reads(args.inputs[0]), reads(largest), writes(args.outputs[0])},
                .constants = {hal::word(rows * columns), hal::word(columns)},
                .items = rows * columns});
}

}  // namespace

std::vector<kernels::OpVariants> quantize_dequantize_ops() {
  return {{"quantize_dequantize",
           {simt_variant("a workgroup per row's largest magnitude, then every element in its bits", fit,
                         encode)}}};
}

}  // namespace meshloom::backends::simt
