// Softmax cross-entropy and its gradient in the logits' place.
#include "kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  return fit_packs(call, target, std::array{call.inputs[0].dim(1)}, HostForm::packs);
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  return other_packs(call, target, std::array{call.inputs[0].dim(1)}, HostForm::packs);
}

std::vector<hal::Define> defines_of(const EncodeArgs& args) {
  std::vector<hal::Define> defines = pack_defines(args.call, args.choice.params.at("pack"));
  defines.push_back(dtype_define("X_TYPE", args.call.inputs[0]));
  return defines;
}

void encode(const EncodeArgs& args) {
  constexpr std::int64_t kSteps = 4;  // packs whose loads are under way at a time
  const std::int64_t rows = args.call.inputs[0].dim(0), n = args.call.inputs[0].dim(1);
  const kernels::CrossEntropyColumns columns = kernels::cross_entropy_columns(args.call);
  std::vector<hal::Define> defines = defines_of(args);
  defines.push_back(define("STEPS", kSteps));
  defines.push_back(define("ROW_HELD", 0));
  launch(args, {.kernel = "cross_entropy",
                .defines = std::move(defines),
                .width = row_width(args.device.info()),
                .groups = grid(rows, 1),
                .bindings = {reads(whole_words(args.inputs[0])), reads(args.inputs[1]),
                             writes(args.outputs[0]), writes(args.outputs[1]), writes(args.outputs[2])},
                .constants = {hal::word(n), hal::word(rows), hal::word(columns.first),
                              hal::word(columns.classes), hal::word(std::int64_t{columns.part})}});
}

void encode_grad(const EncodeArgs& args) {
  const std::int64_t rows = args.call.inputs[0].dim(0), n = args.call.inputs[0].dim(1);
  const kernels::CrossEntropyColumns columns = kernels::cross_entropy_columns(args.call);
  const Distribution each = distribution_of(args.device.info());
  const std::int64_t pack = args.choice.params.at("pack");
  const std::int64_t span = each.width * std::max<std::int64_t>(each.per, pack);
  const std::int64_t pieces = ceil_div(n, span);
  launch(args, {.kernel = "cross_entropy_grad",
                .defines = defines_of(args),
                .width = each.width,
                .groups = grid(rows * pieces, 1),
                .bindings = {reads(whole_words(args.inputs[0])), reads(args.inputs[1]), reads(args.inputs[2]),
                             reads(args.inputs[3]), writes(whole_words(args.outputs[0]))},
                .constants = {hal::word(n), hal::word(rows), hal::word(columns.first),
                              hal::word(columns.classes), hal::word(pieces), hal::word(span)}});
}

}  // namespace

std::vector<kernels::OpVariants> cross_entropy_ops() {
  kernels::Variant forward = simt_variant("one workgroup per row of logits, read once", fit, encode, true);
  kernels::Variant backward = simt_variant("one pass, in the logits' place", fit, encode_grad, true);
  forward.alternatives = backward.alternatives = alternatives;
  return {{"cross_entropy", {forward}}, {"cross_entropy_grad", {backward}}};
}

}  // namespace meshloom::backends::simt
