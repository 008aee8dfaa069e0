#include "backends/opencl/kernels/flash_attention/attention_mma.h"

#include <algorithm>
#include <utility>

#include "backends/opencl/device/mma.h"
#include "hal/math.h"

namespace meshloom::backends::opencl {

using kernels::AttentionDims;
using kernels::Fit;

namespace {

Fit tile_fit(const AttentionTile& tile, const AttentionDims& d,
             const std::map<std::string, std::int64_t>& with) {
  const std::int64_t workspace = simt::extras_bytes(d, tile.rows());
  if (std::string reason = simt::unsupported_workspace(workspace); !reason.empty())
    return Fit::no(std::move(reason));
  std::map<std::string, std::int64_t> params = tile.params();
  params.insert(with.begin(), with.end());
  return Fit::yes(std::move(params), workspace);
}

}  // namespace

std::vector<Fit> forward_fits(const std::vector<AttentionTile>& tiles, const kernels::CallView& call,
                              const std::map<std::string, std::int64_t>& with) {
  std::vector<Fit> result;
  const AttentionDims d = attention_dims(call);
  for (const AttentionTile& tile : tiles)
    if (Fit fit = tile_fit(tile, d, with); fit.ok) result.push_back(std::move(fit));
  return result;
}

Fit forward_fit(const std::vector<AttentionTile>& tiles, const std::string& why,
                const kernels::CallView& call, const hal::DeviceInfo& target,
                const std::map<std::string, std::int64_t>& with) {
  if (tiles.empty()) return Fit::no(why);
  const AttentionDims d = attention_dims(call);
  const auto busy = [&](const AttentionTile& tile) { return busiest_core(tile, d.b * d.h, d.s, target); };
  return tile_fit(
      *std::min_element(tiles.begin(), tiles.end(),
                        [&](const AttentionTile& x, const AttentionTile& y) { return busy(x) < busy(y); }),
      d, with);
}

void encode_forward(const kernels::EncodeArgs& args, const std::string& kernel,
                    const std::vector<hal::Define>& defines) {
  const AttentionDims d = attention_dims(args.call);
  const AttentionTile tile = AttentionTile::of(args.choice.params);
  if (simt::extras_bytes(d, tile.rows()) > 0) {
    simt::copy_extras(args, d, 0, tile.rows());
    args.commands.barrier();
  }
  simt::Launch command = over_own_rows(args, d, tile, kernel, d.h, d.s, 0, tile.rows());
  command.defines.insert(command.defines.end(), defines.begin(), defines.end());
  for (std::size_t i = 0; i < 3; ++i) command.bindings.push_back(reads(args.inputs[i]));
  simt::bind_extras(command, args, d, tile.rows());
  for (const hal::Binding& output : args.outputs) command.bindings.push_back(writes(output));
  simt::launch(args, command);
}

std::string unsupported_attention(const kernels::CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_mma(target, call.inputs[0].dtype); !reason.empty()) return reason;
  return unsupported_attention_call(call);
}

std::string unsupported_attention_call(const kernels::CallView& call) {
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
  const std::int64_t workgroups = hal::ceil_div(batch_heads * hal::ceil_div(length, tile.rows()),
                                                std::max<std::int64_t>(target.profile.cores, 1));
  // An Intel core's engines have a subgroup each before one has two, so that for few rows more subgroups take no longer, and load
  // what is streamed faster.
  const std::int64_t engines = tile.lanes == 32 ? 1 : 128 / tile.lanes;
  return hal::round_up(workgroups * tile.warps, engines) * tile.warp_rows() + workgroups * kWorkgroupRows;
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

namespace {

// What one of the two kernels goes over.
struct Rows {
  std::int64_t own, heads;
  Rows(const AttentionDims& d, GradKernel kernel)
      : own(kernel == GradKernel::dq ? d.s : d.t), heads(kernel == GradKernel::dq ? d.h : d.kv) {}
};

// Workgroups of eight of NVIDIA's warps would leave a core idle at every barrier.
AttentionTile best_of(const std::vector<AttentionTile>& all, const AttentionDims& d, GradKernel kernel,
                      const hal::DeviceInfo& target) {
  const Rows rows(d, kernel);
  const auto cost = [&](const AttentionTile& tile) {
    return busiest_core(tile, d.b * rows.heads, rows.own, target) *
           (tile.workgroup() > 128 && tile.lanes == 32 ? 2 : 1);
  };
  return *std::min_element(all.begin(), all.end(),
                           [&](const AttentionTile& x, const AttentionTile& y) { return cost(x) < cost(y); });
}

Fit fit_tiles(const AttentionTile& dq, const AttentionTile& dkv, const AttentionDims& d) {
  // A bitmask is summed up by blocks of the queries of dq.
  const std::int64_t workspace = simt::grad_workspace(d, true, dq.rows());
  if (std::string reason = simt::unsupported_workspace(workspace); !reason.empty())
    return Fit::no(std::move(reason));
  std::map<std::string, std::int64_t> params = dkv.params();
  for (const auto& [name, value] : dq.params()) params["dq_" + name] = value;
  return Fit::yes(std::move(params), workspace);
}
AttentionTile tile_of(const std::map<std::string, std::int64_t>& params, GradKernel kernel) {
  if (kernel == GradKernel::dkv) return AttentionTile::of(params);
  std::map<std::string, std::int64_t> own;
  for (const auto& [name, value] : params)
    if (name.starts_with("dq_")) own[name.substr(3)] = value;
  return AttentionTile::of(own);
}

}  // namespace

std::vector<Fit> grad_fits(const std::vector<AttentionTile>& dq, const std::vector<AttentionTile>& dkv,
                           const AttentionDims& d, const hal::DeviceInfo& target, bool all) {
  if (dq.empty() || dkv.empty()) return {};
  const AttentionTile best_dq = best_of(dq, d, GradKernel::dq, target),
                      best_dkv = best_of(dkv, d, GradKernel::dkv, target);
  std::vector<Fit> fits{fit_tiles(best_dq, best_dkv, d)};
  if (!all) return fits;
  for (const AttentionTile& tile : dq)
    if (tile != best_dq) fits.push_back(fit_tiles(tile, best_dkv, d));
  for (const AttentionTile& tile : dkv)
    if (tile != best_dkv) fits.push_back(fit_tiles(best_dq, tile, d));
  std::erase_if(fits, [](const Fit& fit) { return !fit.ok; });
  return fits;
}

void encode_attention_grad(
    const kernels::EncodeArgs& args, const std::string& kernel,
    const std::function<std::vector<hal::Define>(const AttentionTile&, GradKernel)>& defines, bool apart) {
  const AttentionDims d = attention_dims(args.call);
  const std::int64_t rows = tile_of(args.choice.params, GradKernel::dq).rows();
  const auto over_rows = [&](GradKernel which) {
    const Rows own(d, which);
    const AttentionTile tile = tile_of(args.choice.params, which);
    simt::Launch command =
        over_own_rows(args, d, tile, kernel, own.heads, own.own, simt::grad_extras_at(d), rows);
    command.defines.push_back(simt::define("COMPUTE_DKV", which == GradKernel::dkv));
    if (defines)
      for (hal::Define& define : defines(tile, which)) command.defines.push_back(std::move(define));
    return command;
  };
  const simt::Launch delta{.kernel = "flash_attention_delta_halves",
                           .defines = {{"BF16", args.call.inputs[0].dtype == hal::DType::bf16 ? "1" : "0"},
                                       simt::define("WIDE", d.dv % 8 == 0)}};
  simt::Launch dkv = over_rows(GradKernel::dkv), dv;
  if (apart) {
    dv = dkv;
    dkv.defines.insert(dkv.defines.end(), {{"COMPUTE_DK", "1"}, {"COMPUTE_DV", "0"}});
    dv.defines.insert(dv.defines.end(), {{"COMPUTE_DK", "0"}, {"COMPUTE_DV", "1"}});
  }
  simt::launch_grad(args, d, true, rows, over_rows(GradKernel::dq), dkv, delta, dv);
}

}  // namespace meshloom::backends::opencl
