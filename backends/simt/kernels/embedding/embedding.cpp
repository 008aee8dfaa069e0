// Table lookup and its gradient without float atomics: equal ids are chained, each chain is summed in order.
#include "kernels/embedding/embedding.h"
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

Fit fit_grad(const CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_dtype(call);
  if (!reason.empty()) return Fit::no(reason);
  return Fit::yes({}, 2 * call.inputs[0].elements() * 4);
}

void encode(const EncodeArgs& args) {
  const std::int64_t count = args.call.outputs[0].elements();
  launch(args, {.kernel = "embedding",

                .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
                .constants = {hal::word(count), hal::word(args.call.inputs[0].dim(1)),
                              hal::word(args.call.inputs[0].dim(0)),
                              hal::word(kernels::embedding_first(args.call))},
                .items = count});
}

void encode_grad(const EncodeArgs& args) {
  const std::int64_t tokens = args.call.inputs[0].elements();
  const std::int64_t rows = args.call.outputs[0].dim(0), n = args.call.outputs[0].dim(1);
  const std::uint32_t width = elementwise_width(args.device.info());
  if (!args.call.attrs.flag("residual"))
    args.commands.fill(writes(args.outputs[0]), hal::word(0.0f), args.label);
  else if (!hal::same_place(args.inputs[2], args.outputs[0]))
    args.commands.copy(reads(args.inputs[2]), writes(args.outputs[0]), args.label);
  launch(args, {.kernel = "embedding_chain",
                .width = width,
                .groups = {static_cast<std::uint32_t>(ceil_div(tokens, width)), 1, 1},
                .bindings = {reads(args.inputs[0]), writes(args.workspace)},
                .constants = {hal::word(tokens)}});
  args.commands.barrier();
  launch(args, {.kernel = "embedding_grad",

                .bindings = {reads(args.inputs[0]), reads(args.workspace), reads(args.inputs[1]),
                             reads_and_writes(args.outputs[0])},
                .constants = {hal::word(tokens * n), hal::word(n), hal::word(rows), hal::word(tokens),
                              hal::word(kernels::embedding_first(args.call))},
                .items = tokens * n});
}

}  // namespace

std::vector<kernels::OpVariants> embedding_ops() {
  return {{"embedding", {simt_variant("one invocation per element", fit, encode)}},
          {"embedding_grad",
           {simt_variant("chains of equal ids summed in order: deterministic, no atomics", fit_grad,
                         encode_grad)}}};
}

}  // namespace meshloom::backends::simt
