// Table lookup and its gradient without float atomics: equal ids are chained, each chain is summed in order.
#include "kernels/embedding/embedding.h"

#include <array>
#include <utility>

#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::int64_t width_of(const CallView& call) { return call.outputs[0].dim(-1); }

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  return fit_packs(call, target, std::array{width_of(call)});
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  return other_packs(call, target, std::array{width_of(call)});
}

std::int64_t chain_bytes(const CallView& call) { return 2 * call.inputs[0].elements() * 4; }

Fit fit_grad(const CallView& call, const hal::DeviceInfo& target) {
  Fit found = fit(call, target);
  found.workspace_bytes = chain_bytes(call);
  return found;
}

std::vector<Fit> grad_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> others = alternatives(call, target);
  for (Fit& other : others) other.workspace_bytes = chain_bytes(call);
  return others;
}

void encode(const EncodeArgs& args) {
  const std::int64_t count = args.call.outputs[0].elements(), pack = args.choice.params.at("pack");
  std::vector<hal::Define> defines = pack_defines(args.call, pack);
  defines.push_back(dtype_define("TABLE_TYPE", args.call.inputs[0]));
  defines.push_back(dtype_define("Y_TYPE", args.call.outputs[0]));
  launch(args, {.kernel = "embedding",
                .defines = std::move(defines),
                .bindings = {reads(whole_words(args.inputs[0])), reads(args.inputs[1]),
                             writes(whole_words(args.outputs[0]))},
                .constants = {hal::word(count), hal::word(args.call.inputs[0].dim(1)),
                              hal::word(args.call.inputs[0].dim(0)),
                              hal::word(kernels::embedding_first(args.call))},
                .items = count / pack,
                .pack = pack});
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
  const std::int64_t pack = args.choice.params.at("pack");
  std::vector<hal::Define> defines = pack_defines(args.call, pack);
  defines.push_back(dtype_define("DY_TYPE", args.call.inputs[1]));
  launch(args, {.kernel = "embedding_grad",
                .defines = std::move(defines),
                .bindings = {reads(args.inputs[0]), reads(args.workspace), reads(whole_words(args.inputs[1])),
                             reads_and_writes(args.outputs[0])},
                .constants = {hal::word(tokens * n), hal::word(n), hal::word(rows), hal::word(tokens),
                              hal::word(kernels::embedding_first(args.call))},
                .items = tokens * n / pack,
                .pack = pack});
}

}  // namespace

std::vector<kernels::OpVariants> embedding_ops() {
  kernels::Variant forward = simt_variant("one invocation per element or pack of them", fit, encode, true);
  kernels::Variant backward = simt_variant("chains of equal ids summed in order: deterministic, no atomics",
                                           fit_grad, encode_grad, true);
  forward.alternatives = alternatives;
  backward.alternatives = grad_alternatives;
  return {{"embedding", {forward}}, {"embedding_grad", {backward}}};
}

}  // namespace meshloom::backends::simt
