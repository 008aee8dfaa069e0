// Attention forward of 16-bit floats by warpgroups, on the tensor cores of NVIDIA's compute capability 9.0, by PTX within OpenCL C.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/mma.h"
#include "backends/opencl/kernels/flash_attention/attention_mma.h"
#include "hal/math.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr int kWarpgroupWarps = 4;  // warps

// As flash_attention_ptx_wgmma.cl lays out its memory, beside the barriers.
std::int64_t wgmma_bytes(const AttentionTile& tile, const AttentionDims& d, std::int64_t stages) {
  return hal::round_up(16 * tile.rows() * AttentionTile::stride(d.d), 1024) +
         stages * 2 * tile.streamed * (d.d + d.dv);
}
// Two tiles are on their way while one is multiplied; with two more a warpgroup waits for no other unless it is two tiles in front.
constexpr std::int64_t kStages = 5, kBarrierBytes = 256;

// Warpgroups and the keys of a tile, the better first: by the registers that a lane can have, 168 in workgroups of three warpgroups
// and 255 in those of two, and by what the assembler spills.
std::vector<AttentionTile> wgmma_tiles(const AttentionDims& d) {
  const bool segments = d.q_segments >= 0;
  const bool masks = segments || d.left < kernels::kUnlimited || d.prefix >= 0 || d.slopes >= 0;
  std::vector<AttentionTile> all;
  for (const auto& [warpgroups, keys] : {std::pair(3, 64), {2, 128}, {2, 64}, {1, 64}}) {
    if (warpgroups == 3 && (d.d > 64 || segments)) continue;
    if (keys == 128 && (d.d > 64 || masks)) continue;
    all.push_back({warpgroups * kWarpgroupWarps, 1, keys});
  }
  return all;
}

std::string unsupported_wgmma_attention(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_wgmma(target, call.inputs[0].dtype); !reason.empty()) return reason;
  if (std::string reason = unsupported_attention(call, target); !reason.empty()) return reason;
  const AttentionDims d = attention_dims(call);
  if ((d.d == 64 || d.d == 128) && d.dv == d.d) return {};
  return "takes heads of 64 or of 128 features, as many of keys as of values; these have " +
         std::to_string(d.d) + " and " + std::to_string(d.dv);
}

std::vector<AttentionTile> fitting_wgmma_tiles(const CallView& call, const hal::DeviceInfo& target,
                                               std::string& why) {
  std::vector<AttentionTile> all;
  if (why = unsupported_wgmma_attention(call, target); !why.empty()) return all;
  const AttentionDims d = attention_dims(call);
  for (const AttentionTile& tile : wgmma_tiles(d))
    if (tile.workgroup() <= simt::max_invocations(target) &&
        wgmma_bytes(tile, d, kStages) + kBarrierBytes <= kWgmmaLocalBytes)
      all.push_back(tile);
  if (all.empty()) why = "workgroups of this device have fewer than 128 invocations";
  return all;
}

Fit fit_wgmma(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  const std::vector<AttentionTile> tiles = fitting_wgmma_tiles(call, target, why);
  return forward_fit(tiles, why, call, target, {{"stages", kStages}});
}

std::vector<Fit> wgmma_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  return forward_fits(fitting_wgmma_tiles(call, target, why), call, {{"stages", kStages}});
}

void encode_wgmma(const EncodeArgs& args) {
  encode_forward(args, "flash_attention_ptx_wgmma",
                 {simt::define("STAGES", args.choice.params.at("stages"))});
}

}  // namespace

kernels::Variant flash_attention_ptx_wgmma() {
  return {.name = "ptx_wgmma",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on the tensor cores of NVIDIA's H100 and H200, four warps together, with the "
              "softmax beside "
              "the products; behind ptx_mma, since no card has run it yet: a rule names it, or tuning finds "
              "it faster",
          .fit = fit_wgmma,
          .encode = encode_wgmma,
          .alternatives = wgmma_alternatives,
          .low_precision = true,
          .needs_self_test = true,
          .experimental = true};
}

}  // namespace meshloom::backends::opencl
