// Attention backward of 16-bit floats by warpgroups, on the tensor cores of NVIDIA's compute capability 9.0, by PTX within OpenCL C: a
// kernel for dq, and one for dk and dv.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/mma.h"
#include "backends/opencl/kernels/flash_attention/attention_mma.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

// Of flash_attention_grad_ptx_wgmma.cl: two tiles are on their way while one is multiplied, and the one before is held.
constexpr std::int64_t kGradStages = 5;

// Of either kernel. Two warpgroups have 255 registers a lane, of which the kernel for dk and dv needs all; one alone is for few rows.
constexpr AttentionTile kGradTiles[] = {{8, 1, 64}, {4, 1, 64}};

std::string unsupported_wgmma_grad(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_wgmma(target, call.inputs[0].dtype); !reason.empty()) return reason;
  if (std::string reason = unsupported_attention(call, target); !reason.empty()) return reason;
  const AttentionDims d = attention_dims(call);
  if (d.d != 64 || d.dv != 64)
    return "takes heads of 64 features, of keys and of values, whose sums the registers hold; these have " +
           std::to_string(d.d) + " and " + std::to_string(d.dv);
  if (simt::max_invocations(target) < kGradTiles[0].workgroup())
    return "needs workgroups of " + std::to_string(kGradTiles[0].workgroup()) + " invocations";
  return {};
}

// The parameters of dk and dv have no prefix.
Fit fit_wgmma_grad_tiles(const AttentionTile& dq, const AttentionTile& dkv, const AttentionDims& d) {
  // A bitmask is summed up by blocks of the queries of dq.
  const std::int64_t workspace = simt::grad_workspace(d, true, dq.rows());
  if (std::string reason = simt::unsupported_workspace(workspace); !reason.empty())
    return Fit::no(std::move(reason));
  std::map<std::string, std::int64_t> params = dkv.params();
  for (const auto& [name, value] : dq.params()) params["dq_" + name] = value;
  params["stages"] = kGradStages;
  return Fit::yes(std::move(params), workspace);
}

AttentionTile best_wgmma_grad_tile(std::int64_t batch_heads, std::int64_t rows,
                                   const hal::DeviceInfo& target) {
  return *std::min_element(
      std::begin(kGradTiles), std::end(kGradTiles), [&](const AttentionTile& x, const AttentionTile& y) {
        return busiest_core(x, batch_heads, rows, target) < busiest_core(y, batch_heads, rows, target);
      });
}

Fit fit_wgmma_grad(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_wgmma_grad(call, target); !reason.empty())
    return Fit::no(std::move(reason));
  const AttentionDims d = attention_dims(call);
  return fit_wgmma_grad_tiles(best_wgmma_grad_tile(d.b * d.h, d.s, target),
                              best_wgmma_grad_tile(d.b * d.kv, d.t, target), d);
}

std::vector<Fit> wgmma_grad_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> all;
  if (!unsupported_wgmma_grad(call, target).empty()) return all;
  for (const AttentionTile& dq : kGradTiles)
    for (const AttentionTile& dkv : kGradTiles)
      if (Fit fit = fit_wgmma_grad_tiles(dq, dkv, attention_dims(call)); fit.ok)
        all.push_back(std::move(fit));
  return all;
}

void encode_wgmma_grad(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const auto& p = args.choice.params;
  const AttentionTile dq{p.at("dq_warps"), p.at("dq_row_matrices"), p.at("dq_streamed")};
  const auto over_rows = [&](const AttentionTile& tile, std::int64_t heads, std::int64_t length, bool dkv) {
    simt::Launch command = over_own_rows(args, d, tile, "flash_attention_grad_ptx_wgmma", heads, length,
                                         simt::grad_extras_at(d), dq.rows());
    command.defines.push_back(simt::define("COMPUTE_DKV", dkv));
    command.defines.push_back(simt::define("STAGES", p.at("stages")));
    return command;
  };
  const simt::Launch delta{.kernel = "flash_attention_delta_halves",
                           .defines = {{"BF16", args.call.inputs[0].dtype == hal::DType::bf16 ? "1" : "0"},
                                       simt::define("WIDE", true)}};
  simt::launch_grad(args, d, true, dq.rows(), over_rows(dq, d.h, d.s, false),
                    over_rows(AttentionTile::of(p), d.kv, d.t, true), delta);
}

}  // namespace

kernels::Variant flash_attention_ptx_wgmma_grad() {
  return {.name = "ptx_wgmma",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on the tensor cores of NVIDIA's H100 and H200, four warps together, heads of 64 "
              "features; "
              "behind ptx_mma, since no card has run it yet: a rule names it, or tuning finds it faster",
          .fit = fit_wgmma_grad,
          .encode = encode_wgmma_grad,
          .alternatives = wgmma_grad_alternatives,
          .low_precision = true,
          .needs_self_test = true,
          .experimental = true};
}

}  // namespace meshloom::backends::opencl
