// Changes of a float dtype.
#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::EncodeArgs;

void encode(const EncodeArgs& args) {
  const std::int64_t count = args.call.inputs[0].elements();
  launch(args, {.kernel = "cast",
                .defines = {{"FROM", std::to_string(dtype_code(args.call.inputs[0].dtype))},
                            {"TO", std::to_string(dtype_code(args.call.outputs[0].dtype))}},
                .bindings = {reads(whole_words(args.inputs[0])), writes(whole_words(args.outputs[0]))},
                .constants = {hal::word(count)},
                .items = (count + 1) / 2});
}

}  // namespace

std::vector<kernels::OpVariants> cast_ops() {
  return {
      {"cast",
       {simt_variant("two elements per invocation, 16-bit floats by shifts", fit_any_dtype, encode, true)}}};
}

}  // namespace meshloom::backends::simt
