// RMSNorm and LayerNorm, forward and backward.
#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::int64_t width_of(const CallView& call) { return call.inputs[0].dim(-1); }
std::int64_t rows_of(const CallView& call) { return call.inputs[0].elements() / width_of(call); }

Fit fit(const CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_dtype(call);
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

Fit fit_grad(const CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_dtype(call);
  if (!reason.empty()) return Fit::no(reason);
  return Fit::yes({}, column_chunks(rows_of(call)) * width_of(call) * 4);
}

template <bool kCentred>
void encode(const EncodeArgs& args) {
  Launch command{.kernel = "norm",
                 .defines = {{"CENTRED", kCentred ? "1" : "0"}},
                 .width = row_width(args.device.info()),
                 .groups = grid(rows_of(args.call), 1),
                 .constants = {hal::word(width_of(args.call)), hal::word(rows_of(args.call)),
                               hal::word(static_cast<float>(args.call.attrs.number("eps")))}};
  for (const hal::Binding& binding : args.inputs) command.bindings.push_back(reads(binding));
  for (const hal::Binding& binding : args.outputs) command.bindings.push_back(writes(binding));
  launch(args, command);
}

// The weight's gradient first: dx may take dy's place.
template <bool kCentred>
void encode_grad(const EncodeArgs& args) {
  const std::int64_t n = width_of(args.call), rows = rows_of(args.call);
  const hal::Binding x = reads(args.inputs[0]), dy = reads(args.inputs[args.inputs.size() - 1]);
  const hal::Binding rstd = reads(args.inputs[kCentred ? 3 : 2]);
  if constexpr (kCentred) {
    column_sum(args, 2, {x, reads(args.inputs[2]), rstd, dy}, rows, n, args.workspace, args.outputs[1]);
    args.commands.barrier();
    column_sum(args, 0, {dy}, rows, n, args.workspace, args.outputs[2]);
  } else {
    column_sum(args, 1, {x, rstd, dy}, rows, n, args.workspace, args.outputs[1]);
  }
  args.commands.barrier();
  Launch command{.kernel = "norm_grad",
                 .defines = {{"CENTRED", kCentred ? "1" : "0"}},
                 .width = row_width(args.device.info()),
                 .groups = grid(rows, 1),
                 .constants = {hal::word(n), hal::word(rows)}};
  for (const hal::Binding& binding : args.inputs) command.bindings.push_back(reads(binding));
  command.bindings.push_back(writes(args.outputs[0]));
  launch(args, command);
}

}  // namespace

std::vector<kernels::OpVariants> norm_ops() {
  const std::string row = "one workgroup per row, folded by a fixed tree";
  const std::string grad = "one workgroup per row; the weight's gradient by chunks of rows in a fixed order";
  return {{"rms_norm", {simt_variant(row, fit, encode<false>)}},
          {"rms_norm_grad", {simt_variant(grad, fit_grad, encode_grad<false>)}},
          {"layer_norm", {simt_variant(row, fit, encode<true>)}},
          {"layer_norm_grad", {simt_variant(grad, fit_grad, encode_grad<true>)}}};
}

}  // namespace meshloom::backends::simt
