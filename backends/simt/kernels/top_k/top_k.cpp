// A few columns of each row: which are largest, take them, put them back.
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

Fit fit_top_k(const CallView& call, const hal::DeviceInfo& target) {
  std::string reason = unsupported_dtype(call);
  if (reason.empty())
    reason = unsupported_iterations(
        target, static_cast<double>((call.inputs[0].dim(1) + 1) * call.outputs[0].dim(1)));
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

void encode_top_k(const EncodeArgs& args) {
  const std::int64_t rows = args.call.inputs[0].dim(0);
  launch_rows(args, rows,
              {.kernel = "top_k",
               .bindings = {reads(args.inputs[0]), writes(args.outputs[0])},
               .constants = {hal::word(args.call.inputs[0].dim(1)), hal::word(rows),
                             hal::word(args.call.outputs[0].dim(1))}});
}

void encode_pair(const EncodeArgs& args, const char* kernel, std::int64_t n) {
  const std::int64_t count = args.call.outputs[0].elements();
  launch(args, {.kernel = kernel,
                .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
                .constants = {hal::word(count), hal::word(args.call.inputs[1].dim(1)), hal::word(n)},
                .items = count});
}
void encode_gather(const EncodeArgs& args) { encode_pair(args, "gather", args.call.inputs[0].dim(1)); }
void encode_scatter_add(const EncodeArgs& args) {
  encode_pair(args, "scatter_add", args.call.outputs[0].dim(1));
}

}  // namespace

std::vector<kernels::OpVariants> top_k_ops() {
  return {
      {"top_k",
       {simt_variant("one invocation per row, one scan for each column chosen", fit_top_k, encode_top_k)}},
      {"gather", {simt_variant("one invocation per element", fit, encode_gather)}},
      {"scatter_add", {simt_variant("one invocation per element", fit, encode_scatter_add)}}};
}

}  // namespace meshloom::backends::simt
