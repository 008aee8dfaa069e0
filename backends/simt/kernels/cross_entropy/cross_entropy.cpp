// Softmax cross-entropy and its gradient in the logits' place.
#include "kernels/cross_entropy/cross_entropy.h"
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

void encode(const EncodeArgs& args) {
  const std::int64_t rows = args.call.inputs[0].dim(0), n = args.call.inputs[0].dim(1);
  const kernels::CrossEntropyColumns columns = kernels::cross_entropy_columns(args.call);
  launch(args, {.kernel = "cross_entropy",
                .width = row_width(args.device.info()),
                .groups = grid(rows, 1),
                .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0]),
                             writes(args.outputs[1]), writes(args.outputs[2])},
                .constants = {hal::word(n), hal::word(rows), hal::word(columns.first),
                              hal::word(columns.classes), hal::word(std::int64_t{columns.part})}});
}

void encode_grad(const EncodeArgs& args) {
  const std::int64_t count = args.call.inputs[0].elements();
  const kernels::CrossEntropyColumns columns = kernels::cross_entropy_columns(args.call);
  launch(args, {.kernel = "cross_entropy_grad",

                .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]),
                             reads(args.inputs[3]), writes(args.outputs[0])},
                .constants = {hal::word(count), hal::word(args.call.inputs[0].dim(1)),
                              hal::word(columns.first), hal::word(columns.classes)},
                .items = count});
}

}  // namespace

std::vector<kernels::OpVariants> cross_entropy_ops() {
  return {{"cross_entropy", {simt_variant("one workgroup per row of logits", fit, encode)}},
          {"cross_entropy_grad", {simt_variant("one pass, in the logits' place", fit, encode_grad)}}};
}

}  // namespace meshloom::backends::simt
