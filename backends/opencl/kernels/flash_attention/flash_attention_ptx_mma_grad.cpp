// Attention backward of 16-bit floats on NVIDIA's tensor cores, by PTX within OpenCL C: a kernel for dq, and one for dk and dv.
#include <algorithm>
#include <map>
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

enum class Kernel { dq, dkv };

// What one of the two kernels goes over.
struct Rows {
  std::int64_t own, heads;
  Rows(const AttentionDims& d, Kernel kernel)
      : own(kernel == Kernel::dq ? d.s : d.t), heads(kernel == Kernel::dq ? d.h : d.kv) {}
};

// A lane's registers for sums, own rows and scores, beside which there is room for the rest: by what the assembler spills.
std::int64_t backward_registers(const AttentionTile& tile, const AttentionDims& d, Kernel kernel) {
  const std::int64_t x = AttentionTile::padded(d.d), y = AttentionTile::padded(d.dv);
  return tile.row_matrices * ((kernel == Kernel::dq ? x : x + y) / 2 + (x + y) / 4 + tile.streamed);
}
bool fits_backward_registers(const AttentionTile& tile, const AttentionDims& d, Kernel kernel) {
  const std::int64_t held = backward_registers(tile, d, kernel);
  const std::int64_t all = held + registers_of_copies(tile, d);
  if (kernel == Kernel::dq) return held <= 160 && all <= 200;
  return held <= (tile.streamed > 16 || tile.row_matrices > 1 ? 144 : 208) && all <= 216;
}

// As flash_attention_grad_ptx_mma.cl lays out its memory.
std::int64_t backward_bytes(const AttentionTile& tile, const AttentionDims& d, Kernel kernel) {
  const std::int64_t x = AttentionTile::stride(d.d), y = AttentionTile::stride(d.dv);
  const std::int64_t scalars = kernel == Kernel::dq ? 0 : tile.streamed / 2;
  return 16 * std::max(2 * (tile.streamed * (x + y) + scalars), tile.rows() * std::max(x, y));
}

// Every tile that the device has room for. A warp of 32 rows reads half as much of workgroup memory as two of 16.
std::vector<AttentionTile> backward_tiles(const AttentionDims& d, Kernel kernel,
                                          const hal::DeviceInfo& target) {
  std::vector<AttentionTile> all;
  for (const std::int64_t row_matrices : {2, 1})
    for (const std::int64_t warps : {4, 2, 1, 8})
      for (const std::int64_t streamed : {32, 16}) {
        const AttentionTile tile{warps, row_matrices, streamed};
        if (fits_backward_registers(tile, d, kernel) && tile.rows() <= 128 &&
            tile.workgroup() <= simt::max_invocations(target) &&
            backward_bytes(tile, d, kernel) <= simt::workgroup_bytes(target))
          all.push_back(tile);
      }
  return all;
}

// Workgroups of eight warps would leave a core idle at every barrier.
std::int64_t backward_cost(const AttentionTile& tile, const AttentionDims& d, Kernel kernel,
                           const hal::DeviceInfo& target) {
  const Rows rows(d, kernel);
  return busiest_core(tile, d.b * rows.heads, rows.own, target) * (tile.warps > 4 ? 2 : 1);
}
AttentionTile best_of(const std::vector<AttentionTile>& all, const AttentionDims& d, Kernel kernel,
                      const hal::DeviceInfo& target) {
  return *std::min_element(all.begin(), all.end(), [&](const AttentionTile& x, const AttentionTile& y) {
    return backward_cost(x, d, kernel, target) < backward_cost(y, d, kernel, target);
  });
}

// The parameters of dk and dv have no prefix.
Fit fit_tiles(const AttentionTile& dq, const AttentionTile& dkv, const AttentionDims& d) {
  // A bitmask is summed up by blocks of the queries of dq.
  const std::int64_t workspace = simt::grad_workspace(d, true, dq.rows());
  if (std::string reason = simt::unsupported_workspace(workspace); !reason.empty())
    return Fit::no(std::move(reason));
  std::map<std::string, std::int64_t> params = dkv.params();
  for (const auto& [name, value] : dq.params()) params["dq_" + name] = value;
  return Fit::yes(std::move(params), workspace);
}
AttentionTile tile_of(const std::map<std::string, std::int64_t>& params, Kernel kernel) {
  if (kernel == Kernel::dkv) return AttentionTile::of(params);
  return {params.at("dq_warps"), params.at("dq_row_matrices"), params.at("dq_streamed")};
}

// The choice, and with `all` what else there is room for.
std::vector<Fit> backward_fits(const CallView& call, const hal::DeviceInfo& target, bool all,
                               std::string& why) {
  if (why = unsupported_attention(call, target); !why.empty()) return {};
  const AttentionDims d = attention_dims(call);
  const std::vector<AttentionTile> dq = backward_tiles(d, Kernel::dq, target),
                                   dkv = backward_tiles(d, Kernel::dkv, target);
  if (dq.empty() || dkv.empty()) {
    why = "heads of " + std::to_string(d.d) + " and " + std::to_string(d.dv) +
          " features do not fit the registers of a lane and " +
          std::to_string(simt::workgroup_bytes(target)) + " bytes of workgroup memory";
    return {};
  }
  const AttentionTile best_dq = best_of(dq, d, Kernel::dq, target),
                      best_dkv = best_of(dkv, d, Kernel::dkv, target);
  std::vector<Fit> fits{fit_tiles(best_dq, best_dkv, d)};
  if (!all) return fits;
  for (const AttentionTile& tile : dq)
    if (tile != best_dq) fits.push_back(fit_tiles(tile, best_dkv, d));
  for (const AttentionTile& tile : dkv)
    if (tile != best_dkv) fits.push_back(fit_tiles(best_dq, tile, d));
  std::erase_if(fits, [](const Fit& fit) { return !fit.ok; });
  return fits;
}

Fit fit_backward(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  std::vector<Fit> fits = backward_fits(call, target, false, why);
  return fits.empty() ? Fit::no(why) : std::move(fits.front());
}
std::vector<Fit> backward_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  return backward_fits(call, target, true, why);
}

void encode_backward(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const std::int64_t rows = tile_of(args.choice.params, Kernel::dq).rows();
  const auto over_rows = [&](Kernel kernel) {
    const Rows own(d, kernel);
    simt::Launch command =
        over_own_rows(args, d, tile_of(args.choice.params, kernel), "flash_attention_grad_ptx_mma", own.heads,
                      own.own, simt::grad_extras_at(d), rows);
    command.defines.push_back(simt::define("COMPUTE_DKV", kernel == Kernel::dkv));
    return command;
  };
  const simt::Launch delta{.kernel = "flash_attention_delta_halves",
                           .defines = {{"BF16", args.call.inputs[0].dtype == hal::DType::bf16 ? "1" : "0"},
                                       simt::define("WIDE", d.dv % 8 == 0)}};
  simt::launch_grad(args, d, true, rows, over_rows(Kernel::dq), over_rows(Kernel::dkv), delta);
}

}  // namespace

kernels::Variant flash_attention_ptx_mma_grad() {
  return {
      .name = "ptx_mma",
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
