// Biases by distance, and the gradient of their table: by way of one value per head and distance.
#include "kernels/relative_bias/relative_bias.h"

#include <algorithm>

#include "backends/simt/dialect/expression.h"
#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::RelativeBiasDims;

Fit fit(const CallView& call, const hal::DeviceInfo&) {
  const RelativeBiasDims d = kernels::relative_bias_dims(call);
  const std::string reason = unsupported_dtype(call);
  return reason.empty() ? Fit::yes({}, d.h * d.distances() * 4) : Fit::no(reason);
}

Fit fit_grad(const CallView& call, const hal::DeviceInfo& target) {
  const RelativeBiasDims d = kernels::relative_bias_dims(call);
  std::string reason = unsupported_dtype(call);
  if (reason.empty()) reason = unsupported_iterations(target, static_cast<double>(d.distances()));
  return reason.empty() ? Fit::yes({}, (d.h + 1) * d.distances() * 4) : Fit::no(reason);
}

Launch step(const EncodeArgs& args, int number, std::int64_t count, hal::Binding from, hal::Binding to) {
  const RelativeBiasDims d = kernels::relative_bias_dims(args.call);
  const kernels::Expression expression = kernels::parse_expression(args.call.attrs.text("row"));
  const bool rows = number % 2 == 0;
  return {.kernel = "relative_bias",
          .defines = {{"STEP", std::to_string(number)},
                      {"CHAIN", rows ? steps(expression) : ""},
                      {"ROOT", rows ? "t" + std::to_string(expression.roots[0]) : ""}},
          .bindings = {reads(from), writes(to)},
          .constants = {hal::word(count), hal::word(d.rows), hal::word(d.h), hal::word(d.s), hal::word(d.t),
                        hal::word(d.distances())}};
}

void encode(const EncodeArgs& args) {
  const RelativeBiasDims d = kernels::relative_bias_dims(args.call);
  Launch values = step(args, 0, d.h * d.distances(), args.inputs[0], args.workspace);
  values.items = d.h * d.distances();
  launch(args, values);
  args.commands.barrier();
  Launch spread = step(args, 1, d.h * d.s * d.t, args.workspace, args.outputs[0]);
  spread.items = d.h * d.s * d.t;
  launch(args, spread);
}

void encode_grad(const EncodeArgs& args) {
  const RelativeBiasDims d = kernels::relative_bias_dims(args.call);
  const std::int64_t diagonals = d.h * d.distances(), values = d.rows * d.h;
  launch_rows(args, diagonals, step(args, 2, diagonals, args.inputs[0], args.workspace));
  args.commands.barrier();
  launch_rows(args, values, step(args, 3, values, args.workspace, args.outputs[0]));
}

}  // namespace

std::vector<kernels::OpVariants> relative_bias_ops() {
  return {{"relative_bias",
           {simt_variant("the value of every distance, then one invocation per pair", fit, encode)}},
          {"relative_bias_grad",
           {simt_variant("sums along diagonals, then by row of the table", fit_grad, encode_grad)}}};
}

}  // namespace meshloom::backends::simt
