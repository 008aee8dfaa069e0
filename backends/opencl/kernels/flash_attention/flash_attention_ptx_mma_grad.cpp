// Attention backward of 16-bit floats on NVIDIA's tensor cores, by PTX within OpenCL C: a kernel for dq, and one for dk and dv.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/kernels/flash_attention/attention_mma.h"
#include "hal/math.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

// A lane's registers for sums of dk and dv, for keys, values and scores, beside which there is room for the rest: by what the
// assembler spills.
constexpr std::int64_t kBackwardRegisters = 208;
std::int64_t backward_registers(const AttentionTile& tile, const AttentionDims& d) {
  const std::int64_t features = AttentionTile::padded(d.d) + AttentionTile::padded(d.dv);
  return tile.row_matrices * (features / 2 + features / 4 + tile.streamed);
}

// As flash_attention_grad_ptx_mma.cl lays out its memory; the kernel for dk and dv needs more.
std::int64_t backward_bytes(const AttentionTile& tile, const AttentionDims& d) {
  const std::int64_t x = AttentionTile::stride(d.d), y = AttentionTile::stride(d.dv);
  return 16 * std::max(2 * tile.streamed * (x + y) + tile.streamed, tile.rows() * std::max(x, y));
}

// Every tile that the device has room for, what should be fastest first; `why` not, where there is none.
std::vector<AttentionTile> backward_tiles(const CallView& call, const hal::DeviceInfo& target, std::string& why) {
  std::vector<AttentionTile> all;
  if (why = unsupported_attention(call, target); !why.empty()) return all;
  const AttentionDims d = attention_dims(call);
  const auto limit = simt::workgroup_bytes(target);
  for (const std::int64_t warps : {4, 2, 1, 8})
    for (const std::int64_t row_matrices : {1, 2})
      for (const std::int64_t streamed : {32, 16, 64}) {
        const AttentionTile tile{warps, row_matrices, streamed};
        if (backward_registers(tile, d) <= kBackwardRegisters && tile.workgroup() <= simt::max_invocations(target) &&
            backward_bytes(tile, d) <= limit)
          all.push_back(tile);
      }
  if (all.empty())
    why = "heads of " + std::to_string(d.d) + " and " + std::to_string(d.dv) +
          " features do not fit the registers of a lane and " + std::to_string(limit) +
          " bytes of workgroup memory";
  return all;
}

Fit fit_backward_tile(const AttentionTile& tile, const AttentionDims& d) {
  const std::int64_t workspace = simt::grad_workspace(d, true, tile.rows());
  if (std::string reason = simt::unsupported_workspace(workspace); !reason.empty())
    return Fit::no(std::move(reason));
  return Fit::yes(tile.params(), workspace);
}

Fit fit_backward(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  const std::vector<AttentionTile> all = backward_tiles(call, target, why);
  if (all.empty()) return Fit::no(why);
  const AttentionDims d = attention_dims(call);
  // The first of which no warp would be idle.
  const auto chosen = std::find_if(all.begin(), all.end(), [&](const AttentionTile& tile) {
    return tile.rows() < std::max(d.s, d.t) + tile.rows() / tile.warps;
  });
  return fit_backward_tile(chosen == all.end() ? all.back() : *chosen, d);
}

std::vector<Fit> backward_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  std::vector<Fit> result;
  const AttentionDims d = attention_dims(call);
  for (const AttentionTile& tile : backward_tiles(call, target, why))
    if (Fit fit = fit_backward_tile(tile, d); fit.ok) result.push_back(std::move(fit));
  return result;
}

void encode_backward(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const AttentionTile tile = AttentionTile::of(args.choice.params);
  const auto over_rows = [&](bool dkv) {
    simt::Launch command = over_own_rows(args, d, tile, "flash_attention_grad_ptx_mma", dkv ? d.kv : d.h,
                                         dkv ? d.t : d.s, simt::grad_extras_at(d));
    command.defines.push_back(simt::define("COMPUTE_DKV", dkv));
    return command;
  };
  const simt::Launch delta{.kernel = "flash_attention_delta_halves",
                           .defines = {{"BF16", args.call.inputs[0].dtype == hal::DType::bf16 ? "1" : "0"}}};
  simt::launch_grad(args, d, true, tile.rows(), over_rows(false), over_rows(true), delta);
}

}  // namespace

kernels::Variant flash_attention_ptx_mma_grad() {
  return {.name = "ptx_mma",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on NVIDIA's tensor cores, by PTX that its OpenCL compiler takes: a warp owns rows, "
              "the other side is streamed past, probabilities in two parts",
          .fit = fit_backward,
          .encode = encode_backward,
          .alternatives = backward_alternatives,
          .low_precision = true,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
