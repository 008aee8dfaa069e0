// Dropout by integer arithmetic alone: the same elements on every driver.
#include "kernels/dropout/dropout.h"

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

hal::Word word(std::uint32_t bits) { return hal::word(std::int64_t{bits}); }

Fit fit(const CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_dtype(call);
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

void encode(const EncodeArgs& args) {
  const kernels::DropoutDims dims = kernels::dropout_dims(args.call);
  const bool shared = dims.share > 1;
  // The first and the last block may be used in part.
  const std::int64_t items = shared ? dims.count : dims.count / 4 + 2;
  launch(args, {.kernel = "dropout",
                .defines = {{"SHARE", shared ? "1" : "0"}},
                .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
                .constants = {hal::word(items), hal::word(dims.count), hal::word(dims.share),
                              word(static_cast<std::uint32_t>(dims.row_words)), word(dims.k0), word(dims.k1),
                              word(dims.threshold), hal::word(dims.scale)},
                .items = items});
}

}  // namespace

std::vector<kernels::OpVariants> dropout_ops() {
  return {{"dropout", {simt_variant("four elements per invocation, words drawn on the spot", fit, encode)}}};
}

}  // namespace meshloom::backends::simt
