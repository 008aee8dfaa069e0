// AdamW, one pass over the parameter and its moments.
#include "backends/simt/kernels/adamw/adamw.h"

#include <cmath>

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

Fit fit(const CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_dtype(call);
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

void encode(const EncodeArgs& args) {
  const std::int64_t count = args.call.inputs[0].elements();
  Launch command{.kernel = "adamw",
                 .defines = {define("QUADS", count % 4 == 0 ? 1 : 0)},
                 .constants = adamw_constants(count, args.call.attrs),
                 .items = (count + 3) / 4};
  for (const hal::Binding& binding : args.inputs) command.bindings.push_back(reads(binding));
  for (const hal::Binding& binding : args.outputs) command.bindings.push_back(writes(binding));
  launch(args, command);
}

}  // namespace

std::vector<hal::Word> adamw_constants(std::int64_t count, const kernels::Attrs& attrs) {
  const double beta1 = attrs.number("beta1"), beta2 = attrs.number("beta2");
  std::vector<hal::Word> constants{hal::word(count)};
  for (double value : {beta1, beta2, std::log(beta1), std::log(beta2), attrs.number("eps"),
                       attrs.number("weight_decay"), 1 - beta1, 1 - beta2})
    constants.push_back(hal::word(static_cast<float>(value)));
  return constants;
}

std::vector<kernels::OpVariants> adamw_ops() {
  return {{"adamw", {simt_variant("one pass, in place", fit, encode)}}};
}

}  // namespace meshloom::backends::simt
