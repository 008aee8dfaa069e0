// Variants that know f32 only, on calls with 16-bit floats: what is read is converted to f32 in the workspace first,
// what is written is rounded from there. Costs the two passes over memory, so a variant that reads and writes
// 16 bits itself goes before (Variant::low_precision).
#include <algorithm>
#include <utility>

#include "hal/math.h"
#include "kernels/core/contract.h"
#include "kernels/core/variant.h"

namespace meshloom::kernels {
namespace {

// Where a piece of the workspace may begin: a multiple of what bindings need.
std::int64_t offset_aligned(std::int64_t bytes, const hal::DeviceInfo& target) {
  return hal::round_up(bytes, std::max<std::int64_t>(256, target.limits.offset_alignment));
}

Attrs cast_attrs(DType dtype) { return {{"dtype", std::string(hal::to_string(dtype))}}; }

// One cast, and the types it is a view of.
struct Cast {
  std::vector<TensorType> from, to;
  Attrs attrs;
  Cast(const TensorType& a, const TensorType& b) : from{a}, to{b}, attrs(cast_attrs(b.dtype)) {}
  CallView view() const { return {"cast", from, to, attrs}; }
};

// By the first reason against it; "" = f32 copies can be made.
std::string against(const CallView& call, const Variant& cast_variant, const hal::DeviceInfo& target) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const TensorType& type : *types) {
      if (!hal::is_low_precision(type.dtype)) continue;
      const Cast cast(type, widened(type));
      const Fit fit = cast_variant.fit(cast.view(), target);
      if (!fit.ok) return fit.reason;
      // A choice has room for the parameters of one variant only, and `fit` is not asked again when recording.
      if (!fit.params.empty() || fit.workspace_bytes > 0) return "needs parameters or workspace";
    }
  return {};
}

}  // namespace

Fit Variant::answer(const CallView& call, const hal::DeviceInfo& target) const {
  if (!any_low_precision(call)) return trusted_fit(call, target);
  std::string reason = "takes f32 only";
  if (low_precision) {
    Fit own = trusted_fit(call, target);
    if (own.ok) return own;
    reason = own.reason;
  }
  if (op == "cast") return Fit::no(reason);
  if (!cast_variant || !*cast_variant) return Fit::no(reason + ", and the backend has no kernel that casts");
  const std::vector<TensorType> in = widened(call.inputs), out = widened(call.outputs);
  Fit wide = trusted_fit({call.op, in, out, call.attrs}, target);
  // Why it does not take the call as it is says more than why it does not take one of f32.
  if (!wide.ok) return low_precision ? Fit::no(reason) : wide;
  if (std::string no = against(call, **cast_variant, target); !no.empty()) return Fit::no("cast: " + no);
  wide.params[kF32Fallback] = 1;
  wide.workspace_bytes = offset_aligned(wide.workspace_bytes, target);
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const TensorType& type : *types)
      if (hal::is_low_precision(type.dtype))
        wide.workspace_bytes += offset_aligned(widened(type).bytes(), target);
  return wide;
}

void Variant::record(const EncodeArgs& args) const {
  if (!args.choice.params.count(kF32Fallback)) return encode(args);
  const hal::DeviceInfo& target = args.device.info();
  // From the back of the workspace; what is left in front is the variant's own.
  std::int64_t end = args.workspace.bytes;
  const auto take = [&](const TensorType& type) {
    hal::Binding piece = args.workspace;
    end -= offset_aligned(widened(type).bytes(), target);
    piece.offset += end;
    piece.bytes = widened(type).bytes();
    return piece;
  };
  const auto cast = [&](const TensorType& from_type, const TensorType& to_type, const hal::Binding& from,
                        const hal::Binding& to) {
    const Cast call(from_type, to_type);
    Choice choice;
    choice.variant = *cast_variant;
    (*cast_variant)
        ->encode({call.view(), choice, args.device, args.commands, {&from, 1}, {&to, 1}, {}, args.label});
  };
  const CallView& call = args.call;
  std::vector<hal::Binding> in(args.inputs.begin(), args.inputs.end()),
      out(args.outputs.begin(), args.outputs.end());
  bool read = false, written = false;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!hal::is_low_precision(call.inputs[i].dtype)) continue;
    in[i] = take(call.inputs[i]);
    in[i].access = hal::Access::read;
    cast(call.inputs[i], widened(call.inputs[i]), args.inputs[i], in[i]);
    read = true;
  }
  for (std::size_t o = 0; o < out.size(); ++o)
    if (hal::is_low_precision(call.outputs[o].dtype)) {
      out[o] = take(call.outputs[o]);
      out[o].access = hal::Access::write;
    }
  if (read) args.commands.barrier();
  hal::Binding rest = args.workspace;
  rest.bytes = end;
  if (end == 0) rest = {};
  const std::vector<TensorType> in_types = widened(call.inputs), out_types = widened(call.outputs);
  encode({{call.op, in_types, out_types, call.attrs},
          args.choice,
          args.device,
          args.commands,
          in,
          out,
          rest,
          args.label});
  for (std::size_t o = 0; o < out.size(); ++o) {
    if (!hal::is_low_precision(call.outputs[o].dtype)) continue;
    if (!written) args.commands.barrier();
    written = true;
    cast(widened(call.outputs[o]), call.outputs[o], out[o], args.outputs[o]);
  }
}

}  // namespace meshloom::kernels
