// Attention for OpenCL drivers that run on the host's cores: few, fat invocations of vectors, no barriers.
#include <algorithm>

#include "backends/simt/kernels/flash_attention/flash_attention_common.h"

namespace meshloom::backends::simt {
namespace {

using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kPanel = 16;      // rows of one vector
constexpr std::int64_t kMostPanels = 4;  // per invocation: they share what is streamed
constexpr std::int64_t kStream = 48;     // streamed rows per block, a multiple of both heights
constexpr std::int64_t kSpan = 192;      // keys of a bias whose gradient an invocation sums at a time

std::int64_t vec_height(const hal::DeviceInfo& target) { return target.profile.lanes >= 16 ? 12 : 6; }

Fit fit_any(const CallView& call, const hal::DeviceInfo& target, bool backward) {
  if (!target.is_cpu) return Fit::no("is for OpenCL on a CPU; this device has cores of its own");
  if (on_llvmpipe(target)) return Fit::no("llvmpipe takes vectors apart and would compile it for minutes");
  if (const std::string reason = attention_unfit(call); !reason.empty()) return Fit::no(reason);
  const AttentionDims dims = attention_dims(call);
  if (dims.rng_state >= 0) return Fit::no("drops no probabilities");
  const std::int64_t workspace = backward ? grad_workspace(dims, true, kPanel) : extras_bytes(dims, kPanel);
  if (const std::string reason = too_large(workspace); !reason.empty()) return Fit::no(reason);
  // As many panels per invocation as leave every core a few invocations.
  const std::int64_t wanted = 4 * std::max(target.profile.cores, 1);
  std::int64_t panels = kMostPanels;
  while (panels > 1 && dims.b * dims.h * blocks_of(dims.s, kPanel * panels) < wanted) panels /= 2;
  return Fit::yes({{"height", vec_height(target)}, {"panels", panels}}, workspace);
}
Fit fit_bias_grad(const CallView& call, const hal::DeviceInfo& target) {
  Fit fit = fit_any(call, target, true);
  if (fit.ok) fit.params["panels"] = 1;
  return fit;
}
Fit fit(const CallView& call, const hal::DeviceInfo& target) { return fit_any(call, target, false); }
Fit fit_grad(const CallView& call, const hal::DeviceInfo& target) { return fit_any(call, target, true); }

// A kernel over panels of rows of `heads` heads, `length` rows each.
Launch over_panels(const EncodeArgs& args, const AttentionDims& dims, const std::string& kernel,
                   std::int64_t heads, std::int64_t length, std::int64_t extras_at,
                   std::int64_t most_panels = kMostPanels) {
  const auto& params = args.choice.params;
  const std::int64_t panels = params.at("panels"), blocks = blocks_of(length, kPanel * panels);
  Launch command{.kernel = kernel,
                 .defines = {{"D", std::to_string(dims.d)},
                             {"DV", std::to_string(dims.dv)},
                             {"TM", std::to_string(params.at("height"))},
                             {"MOST_PANELS", std::to_string(most_panels)},
                             {"STREAM", std::to_string(kStream)}},
                 .width = 1,
                 .groups = grid(dims.b * heads * blocks, 1),
                 .constants = attention_constants(dims, blocks, heads)};
  add_pair_defines(command.defines, dims, kPanel);
  add_extra_constants(command.constants, dims, extras_at);
  command.constants.push_back(hal::word(panels));
  return command;
}

void encode(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  if (extras_bytes(dims, kPanel) > 0) {
    place_extras(args, dims, 0, kPanel);
    args.commands.barrier();
  }
  Launch command = over_panels(args, dims, "flash_attention_vec16", dims.h, dims.s, 0);
  for (std::size_t i = 0; i < 3; ++i) command.bindings.push_back(reading(args.inputs[i]));
  bind_extras(command, args, dims, kPanel);
  for (const hal::Binding& binding : args.outputs) command.bindings.push_back(writing(binding));
  launch(args, command);
}

void encode_grad(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  const std::int64_t extras_at = grad_extras_at(dims);
  launch_grad(args, dims, true, kPanel,
              over_panels(args, dims, "flash_attention_dq_vec16", dims.h, dims.s, extras_at),
              over_panels(args, dims, "flash_attention_dkv_vec16", dims.kv, dims.t, extras_at));
}

void encode_bias_grad(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  const Launch command =
      over_panels(args, dims, "flash_attention_dq_vec16", dims.h, dims.s, grad_extras_at(dims), 1);
  launch_bias_grad(args, dims, kPanel, kSpan, command);
}

}  // namespace

void add_flash_attention_host(kernels::Catalog& catalog) {
  const std::string about =
      "16 rows per vector, the other side streamed past them as broadcasts: nothing is packed";
  catalog.add(kernels::Variant{.op = "flash_attention",
                               .backend = "opencl",
                               .name = "vec16",
                               .kinds = {hal::ProfileKind::host},
                               .rank = 10,
                               .about = about,
                               .fit = fit,
                               .encode = encode});
  catalog.add(kernels::Variant{.op = "flash_attention_grad",
                               .backend = "opencl",
                               .name = "vec16",
                               .kinds = {hal::ProfileKind::host},
                               .rank = 10,
                               .about = about,
                               .fit = fit_grad,
                               .encode = encode_grad});
  catalog.add(kernels::Variant{.op = "flash_attention_bias_grad",
                               .backend = "opencl",
                               .name = "vec16",
                               .kinds = {hal::ProfileKind::host},
                               .rank = 10,
                               .about = about,
                               .fit = fit_bias_grad,
                               .encode = encode_bias_grad});
}

}  // namespace meshloom::backends::simt
