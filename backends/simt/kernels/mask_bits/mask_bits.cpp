// Masks of bits from expressions of positions.
#include "kernels/mask_bits/mask_bits.h"

#include "backends/simt/dialect/expression.h"
#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::Fit;

Fit fit(const kernels::CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_dtype(call);
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::MaskBitsDims d = kernels::mask_bits_dims(args.call);
  const kernels::Expression expression = kernels::parse_expression(args.call.attrs.text("expr"));
  const std::int64_t count = args.call.outputs[0].elements();
  Launch command{.kernel = "mask_bits",
                 .defines = {{"POSITIONS", d.positions ? "1" : "0"},
                             {"CHAIN", steps(expression)},
                             {"ROOT", "t" + std::to_string(expression.roots[0])}},
                 .constants = {hal::word(count), hal::word(d.s), hal::word(d.t), hal::word(d.words())}};
  for (const hal::Binding& input : args.inputs) command.bindings.push_back(reads(input));
  command.bindings.push_back(writes(args.outputs[0]));
  launch_rows(args, count, command);
}

}  // namespace

std::vector<kernels::OpVariants> mask_bits_ops() {
  return {{"mask_bits", {simt_variant("one invocation per word of bits", fit, encode)}}};
}

}  // namespace meshloom::backends::simt
