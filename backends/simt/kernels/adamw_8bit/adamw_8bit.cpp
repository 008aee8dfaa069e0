// AdamW on eight-bit moments: one pass over the parameter, a workgroup per block.
#include "kernels/adamw_8bit/adamw_8bit.h"

#include <utility>

#include "backends/simt/host/launch.h"
#include "backends/simt/host/packs.h"
#include "backends/simt/kernels/adamw/adamw.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kQuads = kernels::kMomentBlock / 4;

std::int64_t width_of(const hal::DeviceInfo& target) {
  return std::min<std::int64_t>(kQuads, row_width(target));
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  std::string reason = unsupported_size(call);
  const std::int64_t width = width_of(target);
  if (reason.empty() && kQuads % width != 0)
    reason = "workgroups have " + std::to_string(width) + " invocations, which does not divide " +
             std::to_string(kQuads);
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

void update_as(const EncodeArgs& args, const hal::Define& copy, std::vector<hal::Binding> bindings) {
  const std::int64_t count = args.call.inputs[0].elements(), width = width_of(args.device.info());
  launch(args, {.kernel = "adamw_8bit",
                .defines = {{"QUADS", std::to_string(kQuads / width)}, copy},
                .width = static_cast<std::uint32_t>(width),
                .groups = grid(hal::ceil_div(count, kernels::kMomentBlock), 1),
                .bindings = std::move(bindings),
                .constants = adamw_constants(count, args.call.attrs)});
}
void update(const EncodeArgs& args) { update_as(args, define("COPY", 0), plain_update_bindings(args)); }
void update_with_copy(const EncodeArgs& args) {
  update_as(args, dtype_define("COPY", args.call.outputs[3]), fused_update_bindings(args));
}

void encode(const EncodeArgs& args) { record_update(args, update, update_with_copy); }

}  // namespace

std::vector<kernels::OpVariants> adamw_8bit_ops() {
  return {{"adamw_8bit", {simt_variant("one pass, in place, a workgroup per block", fit, encode, true)}}};
}

}  // namespace meshloom::backends::simt
