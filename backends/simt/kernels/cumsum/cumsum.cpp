#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::Fit;

Fit fit(const kernels::CallView& call, const hal::DeviceInfo& target) {
  std::string reason = unsupported_dtype(call);
  if (reason.empty()) reason = unsupported_iterations(target, static_cast<double>(call.inputs[0].dim(-1)));
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

void encode(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].dim(-1), rows = args.call.inputs[0].elements() / n;
  launch_rows(args, rows,
              {.kernel = "cumsum",
               .bindings = {reads(args.inputs[0]), writes(args.outputs[0])},
               .constants = {hal::word(n), hal::word(rows),
                             hal::word(std::int64_t{args.call.attrs.flag("reverse")})}});
}

}  // namespace

std::vector<kernels::OpVariants> cumsum_ops() {
  return {{"cumsum", {simt_variant("one invocation per row", fit, encode)}}};
}

}  // namespace meshloom::backends::simt
