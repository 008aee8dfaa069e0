// Features side by side, and taken apart.
#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

Fit fit(const CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_dtype(call);
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

void encode_concat(const EncodeArgs& args) {
  const kernels::TensorType &a = args.call.inputs[0], &b = args.call.inputs[1];
  const std::int64_t count = args.call.outputs[0].elements();
  launch(args, {.kernel = "concat",
                .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
                .constants = {hal::word(count), hal::word(a.dim(1)), hal::word(b.dim(1)),
                              hal::word(a.dim(0) / b.dim(0))},
                .items = count});
}

void encode_slice(const EncodeArgs& args) {
  const std::int64_t count = args.call.outputs[0].elements();
  launch(args,
         {.kernel = "slice_features",
          .bindings = {reads(args.inputs[0]), writes(args.outputs[0])},
          .constants = {hal::word(count), hal::word(args.call.inputs[0].dim(1)),
                        hal::word(args.call.attrs.integer("begin")), hal::word(args.call.outputs[0].dim(1)),
                        hal::word(args.call.attrs.integer("group"))},
          .items = count});
}

}  // namespace

std::vector<kernels::OpVariants> concat_ops() {
  return {{"concat", {simt_variant("one invocation per element", fit, encode_concat)}},
          {"slice_features", {simt_variant("one invocation per element", fit, encode_slice)}}};
}

}  // namespace meshloom::backends::simt
