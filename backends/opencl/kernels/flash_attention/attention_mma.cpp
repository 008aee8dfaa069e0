#include "backends/opencl/kernels/flash_attention/attention_mma.h"

#include <algorithm>
#include <utility>

#include "backends/opencl/device/mma.h"
#include "hal/math.h"

namespace meshloom::backends::opencl {

using kernels::AttentionDims;

std::string unsupported_attention(const kernels::CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_mma(target, call.inputs[0].dtype); !reason.empty()) return reason;
  const AttentionDims d = attention_dims(call);
  if (d.rng_state >= 0) return "drops no probabilities";
  for (const std::int64_t features : {d.d, d.dv})
    if (features % 8 != 0)
      return "loads eight features at a time, which heads of " + std::to_string(features) +
             " are no multiple of";
  return simt::unsupported_attention_size(call);
}

std::int64_t registers_of_copies(const AttentionTile& tile, const AttentionDims& d) {
  return 4 * hal::ceil_div(tile.streamed * (d.d + d.dv) / 8, tile.workgroup());
}

std::int64_t busiest_core(const AttentionTile& tile, std::int64_t batch_heads, std::int64_t length,
                          const hal::DeviceInfo& target) {
  // What else a workgroup costs, in rows: tiles of streamed rows are read once for all of its rows.
  constexpr std::int64_t kWorkgroupRows = 32;
  const std::int64_t workgroups = batch_heads * hal::ceil_div(length, tile.rows());
  return hal::ceil_div(workgroups, std::max<std::int64_t>(target.profile.cores, 1)) *
         (tile.rows() + kWorkgroupRows);
}

simt::Launch over_own_rows(const kernels::EncodeArgs& args, const AttentionDims& d, const AttentionTile& tile,
                           const std::string& kernel, std::int64_t heads, std::int64_t length,
                           std::int64_t extras_at, std::int64_t summary_rows) {
  simt::Launch command{.kernel = kernel, .width = static_cast<std::uint32_t>(tile.workgroup())};
  for (const auto& [name, value] :
       {std::pair<const char*, std::int64_t>("AB_TYPE", simt::dtype_code(args.call.inputs[0].dtype)),
        {"WARPS", tile.warps},
        {"ROW_MATRICES", tile.row_matrices},
        {"BC", tile.streamed},
        {"D", d.d},
        {"DV", d.dv},
        {"DP", AttentionTile::padded(d.d)},
        {"DVP", AttentionTile::padded(d.dv)},
        {"PARTS", 2},
        {"POSITIVE_SCALE", d.scale > 0},
        {"PRESENT", simt::present_options(d)}})
    command.defines.push_back(simt::define(name, value));
  command.defines.push_back({"SOFT_CAP", d.soft_cap > 0 ? "true" : "false"});
  simt::add_bias_and_bitmask_defines(command.defines, d, summary_rows);
  const std::int64_t blocks = hal::ceil_div(length, tile.rows());
  command.groups = simt::grid(d.b * heads * blocks, 1);
  command.constants = simt::attention_constants(d, blocks, heads);
  simt::add_extra_constants(command.constants, d, extras_at);
  return command;
}

}  // namespace meshloom::backends::opencl
