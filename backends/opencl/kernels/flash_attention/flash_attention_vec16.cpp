// Attention for OpenCL on the host's cores: few large invocations of vectors, no barriers.
#include <algorithm>

#include "backends/simt/host/quirks.h"
#include "backends/simt/kernels/flash_attention/flash_attention_common.h"
#include "backends/simt/variants.h"
#include "hal/binding.h"

namespace meshloom::backends::opencl {
namespace {

using hal::ceil_div;
using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kPanel = 16;     // rows of one vector
constexpr std::int64_t kMaxPanels = 4;  // per invocation; they share the streamed rows
constexpr std::int64_t kStream = 48;    // streamed rows per block, a multiple of both heights
constexpr std::int64_t kSpan = 192;     // keys of a bias whose gradient an invocation sums at a time

std::int64_t vec_height(const hal::DeviceInfo& target) { return target.profile.lanes >= 16 ? 12 : 6; }

Fit fit_any(const CallView& call, const hal::DeviceInfo& target, bool backward) {
  if (!target.is_cpu) return Fit::no("is only for OpenCL on a CPU");
  if (const simt::Quirks& quirks = simt::quirks_of(target.name); quirks.splits_vectors)
    return Fit::no(std::string(quirks.driver) +
                   " splits vectors, so that compiling this kernel takes minutes");
  if (const std::string reason = simt::unsupported_attention(call); !reason.empty()) return Fit::no(reason);
  const AttentionDims dims = attention_dims(call);
  if (dims.rng_state >= 0) return Fit::no("does not support dropout");
  const std::int64_t workspace =
      backward ? simt::grad_workspace(dims, true, kPanel) : simt::extras_bytes(dims, kPanel);
  if (const std::string reason = simt::unsupported_workspace(workspace); !reason.empty())
    return Fit::no(reason);
  // As many panels per invocation as leave several invocations for every core.
  const std::int64_t wanted = 4 * std::max(target.profile.cores, 1);
  std::int64_t panels = kMaxPanels;
  while (panels > 1 && dims.b * dims.h * ceil_div(dims.s, kPanel * panels) < wanted) panels /= 2;
  return Fit::yes({{"height", vec_height(target)}, {"panels", panels}}, workspace);
}
Fit fit_bias_grad(const CallView& call, const hal::DeviceInfo& target) {
  Fit fit = fit_any(call, target, true);
  if (fit.ok) fit.params["panels"] = 1;
  return fit;
}
Fit fit(const CallView& call, const hal::DeviceInfo& target) { return fit_any(call, target, false); }
Fit fit_grad(const CallView& call, const hal::DeviceInfo& target) { return fit_any(call, target, true); }

// The launch of a kernel over panels of rows of `heads` heads with `length` rows each.
simt::Launch over_panels(const EncodeArgs& args, const AttentionDims& dims, const std::string& kernel,
                         std::int64_t heads, std::int64_t length, std::int64_t extras_at,
                         std::int64_t max_panels = kMaxPanels) {
  const auto& params = args.choice.params;
  const std::int64_t panels = params.at("panels"), blocks = ceil_div(length, kPanel * panels);
  simt::Launch command{.kernel = kernel,
                       .defines = {{"D", std::to_string(dims.d)},
                                   {"DV", std::to_string(dims.dv)},
                                   {"TM", std::to_string(params.at("height"))},
                                   {"MAX_PANELS", std::to_string(max_panels)},
                                   {"STREAM", std::to_string(kStream)}},
                       .width = 1,
                       .groups = simt::grid(dims.b * heads * blocks, 1),
                       .constants = simt::attention_constants(dims, blocks, heads)};
  simt::add_bias_and_bitmask_defines(command.defines, dims, kPanel);
  simt::add_extra_constants(command.constants, dims, extras_at);
  command.constants.push_back(hal::word(panels));
  return command;
}

void encode(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  if (simt::extras_bytes(dims, kPanel) > 0) {
    simt::copy_extras(args, dims, 0, kPanel);
    args.commands.barrier();
  }
  simt::Launch command = over_panels(args, dims, "flash_attention_vec16", dims.h, dims.s, 0);
  for (std::size_t i = 0; i < 3; ++i) command.bindings.push_back(reads(args.inputs[i]));
  simt::bind_extras(command, args, dims, kPanel);
  for (const hal::Binding& binding : args.outputs) command.bindings.push_back(writes(binding));
  simt::launch(args, command);
}

void encode_grad(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  const std::int64_t extras_at = simt::grad_extras_at(dims);
  simt::launch_grad(args, dims, true, kPanel,
                    over_panels(args, dims, "flash_attention_dq_vec16", dims.h, dims.s, extras_at),
                    over_panels(args, dims, "flash_attention_dkv_vec16", dims.kv, dims.t, extras_at));
}

void encode_bias_grad(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  const simt::Launch command =
      over_panels(args, dims, "flash_attention_dq_vec16", dims.h, dims.s, simt::grad_extras_at(dims), 1);
  simt::launch_bias_grad(args, dims, kPanel, kSpan, command);
}

kernels::Variant vec16(decltype(kernels::Variant::fit) fit, decltype(kernels::Variant::encode) encode) {
  return {.name = "vec16",
          .kinds = {hal::ProfileKind::host},
          .about = "16 rows per vector, the other side streamed past them as broadcasts, without packing",
          .fit = fit,
          .encode = encode};
}

}  // namespace

kernels::Variant flash_attention_vec16(simt::Pass pass) {
  const bool backward = pass == simt::Pass::backward;
  return vec16(backward ? fit_grad : fit, backward ? encode_grad : encode);
}

kernels::Variant flash_attention_vec16_bias_grad() { return vec16(fit_bias_grad, encode_bias_grad); }

}  // namespace meshloom::backends::opencl
