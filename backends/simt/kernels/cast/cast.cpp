// Changes of a float dtype.
#include "backends/simt/kernels/cast/cast.h"

#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::EncodeArgs;

void encode(const EncodeArgs& args) {
  record_cast(args, args.call.inputs[0], args.call.outputs[0], args.inputs[0], args.outputs[0]);
}

}  // namespace

void record_cast(const EncodeArgs& args, const kernels::TensorType& from_type,
                 const kernels::TensorType& to_type, const hal::Binding& from, const hal::Binding& to) {
  const std::vector<kernels::TensorType> in{from_type}, out{to_type};
  const std::int64_t count = from_type.elements(),
                     wide = wide_pack({"cast", in, out, args.call.attrs}, args.device.info());
  const bool packs = count % wide == 0;
  launch(args, {.kernel = "cast",
                // Without packs a word at a time, which needs no 16-bit storage.
                .defines = {define("PACK", packs ? wide : 1), define("NARROW", packs ? 1 : 0),
                            dtype_define("FROM", from_type), dtype_define("TO", to_type)},
                .bindings = {reads(whole_words(from)), writes(whole_words(to))},
                .constants = {hal::word(count)},
                .items = packs ? count / wide : ceil_div(count, 2),
                .pack = packs ? wide : 1});
}

std::vector<kernels::OpVariants> cast_ops() {
  return {{"cast",
           {simt_variant("eight or two elements per invocation, 16-bit floats by shifts", fit_any_dtype,
                         encode, true)}}};
}

}  // namespace meshloom::backends::simt
