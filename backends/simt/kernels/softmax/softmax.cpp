// Softmax of short rows: an invocation each.
#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::int64_t width_of(const CallView& call) { return call.inputs[0].dim(-1); }
std::int64_t rows_of(const CallView& call) { return call.inputs[0].elements() / width_of(call); }

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  std::string reason = unsupported_dtype(call);
  if (reason.empty()) reason = unsupported_iterations(target, 3.0 * static_cast<double>(width_of(call)));
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

void encode(const EncodeArgs& args) {
  launch_rows(args, rows_of(args.call),
              {.kernel = "softmax",
               .bindings = {reads(args.inputs[0]), writes(args.outputs[0]), writes(args.outputs[1])},
               .constants = {hal::word(width_of(args.call)), hal::word(rows_of(args.call))}});
}

void encode_grad(const EncodeArgs& args) {
  const bool lse = args.inputs.size() > 2;
  launch_rows(args, rows_of(args.call),
              {.kernel = "softmax_grad",
               .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[lse ? 2 : 0]),
                            writes(args.outputs[0])},
               .constants = {hal::word(width_of(args.call)), hal::word(rows_of(args.call)),
                             hal::word(std::int64_t{lse})}});
}

}  // namespace

std::vector<kernels::OpVariants> softmax_ops() {
  return {{"softmax", {simt_variant("one invocation per row", fit, encode)}},
          {"softmax_grad", {simt_variant("one invocation per row, in place", fit, encode_grad)}}};
}

}  // namespace meshloom::backends::simt
