// Changes of a float dtype.
#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::EncodeArgs;

void encode(const EncodeArgs& args) {
  const kernels::TensorType &from = args.call.inputs[0], &to = args.call.outputs[0];
  const std::int64_t count = from.elements(), wide = wide_pack(args.call, args.device.info());
  const bool packs = count % wide == 0;
  launch(args, {.kernel = "cast",
                // Without packs a word at a time, which needs no 16-bit storage.
                .defines = {define("PACK", packs ? wide : 1), define("NARROW", packs ? 1 : 0),
                            dtype_define("FROM", from), dtype_define("TO", to)},
                .bindings = {reads(whole_words(args.inputs[0])), writes(whole_words(args.outputs[0]))},
                .constants = {hal::word(count)},
                .items = packs ? count / wide : ceil_div(count, 2),
                .pack = packs ? wide : 1});
}

}  // namespace

std::vector<kernels::OpVariants> cast_ops() {
  return {{"cast",
           {simt_variant("eight or two elements per invocation, 16-bit floats by shifts", fit_any_dtype,
                         encode, true)}}};
}

}  // namespace meshloom::backends::simt
