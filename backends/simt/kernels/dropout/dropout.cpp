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
  std::string reason = unsupported_dtype(call);
  const kernels::DropoutDims dims = kernels::dropout_dims(call);
  if (reason.empty() && dims.place(dims.count - 1) > INT32_MAX)
    reason = "takes parts that lie within 2^31 elements of the whole";
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

void encode(const EncodeArgs& args) {
  const kernels::DropoutDims dims = kernels::dropout_dims(args.call);
  const bool single = dims.share > 1 || dims.run < dims.count;
  // The first and the last block may be used in part.
  const std::int64_t items = single ? dims.count : dims.count / 4 + 2;
  const auto before = static_cast<std::uint64_t>(dims.before);
  launch(args,
         {.kernel = "dropout",
          .defines = {{"SINGLE", single ? "1" : "0"}},
          .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
          .constants = {hal::word(items), hal::word(dims.count), hal::word(dims.share),
                        word(static_cast<std::uint32_t>(dims.row_words)), word(dims.k0), word(dims.k1),
                        word(dims.threshold), hal::word(dims.scale), word(static_cast<std::uint32_t>(before)),
                        word(static_cast<std::uint32_t>(before >> 32)), hal::word(dims.rest),
                        hal::word(dims.run), hal::word(dims.stride)},
          .items = items});
}

}  // namespace

std::vector<kernels::OpVariants> dropout_ops() {
  return {{"dropout", {simt_variant("four elements per invocation, words drawn on the spot", fit, encode)}}};
}

}  // namespace meshloom::backends::simt
