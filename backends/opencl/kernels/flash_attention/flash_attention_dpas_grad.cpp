// Attention backward of 16-bit floats on the matrix units of Intel's GPUs: a kernel for dq, and one for dk and dv.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/kernels/flash_attention/attention_dpas.h"
#include "hal/math.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

// The sums of both dk and dv do not fit the registers: each has a kernel of its own, which computes the scores once more.
bool apart(const AttentionDims& d) { return d.d + d.dv > 144; }

// A lane's registers for sums, scores and the copies of the next tile, and for own rows unless they stand in workgroup memory.
std::int64_t dpas_grad_registers(const AttentionTile& tile, const AttentionDims& d, GradKernel kernel,
                                 bool own_shared) {
  const std::int64_t own = own_shared ? 0 : (AttentionTile::padded(d.d) + AttentionTile::padded(d.dv)) / 2;
  const std::int64_t sums = kernel == GradKernel::dq ? d.d : apart(d) ? std::max(d.d, d.dv) : d.d + d.dv;
  return tile.row_matrices * (sums + 2 * tile.streamed + own) + registers_of_tile(tile, d);
}
bool own_shared_in_grad(const AttentionTile& tile, const AttentionDims& d, GradKernel kernel) {
  return !leaves_registers_to_own_rows(dpas_grad_registers(tile, d, kernel, false));
}

// As flash_attention_grad_dpas.cl lays out its memory; where dk and dv are apart, that of dk has more.
std::int64_t dpas_grad_bytes(const AttentionTile& tile, const AttentionDims& d, GradKernel kernel) {
  const std::int64_t x = rows_bytes(tile, d.d) + pairs_bytes(tile, d.d), y = rows_bytes(tile, d.dv);
  const std::int64_t scalars = kernel == GradKernel::dq ? 0 : 2 * 4 * tile.streamed;
  const std::int64_t of_dv = kernel == GradKernel::dq || apart(d) ? 0 : pairs_bytes(tile, d.dv);
  const std::int64_t own = own_shared_in_grad(tile, d, kernel)
                               ? 2 * tile.rows() * (AttentionTile::padded(d.d) + AttentionTile::padded(d.dv))
                               : 0;
  return 2 * (x + y + of_dv + scalars) + own;
}

// Every tile that the device has room for.
std::vector<AttentionTile> dpas_grad_tiles(const CallView& call, GradKernel kernel,
                                           const hal::DeviceInfo& target) {
  const AttentionDims d = attention_dims(call);
  const std::int64_t lanes = find_dpas(target, call.inputs[0].dtype)->n;
  std::vector<AttentionTile> all;
  const auto shared = [&](const AttentionTile& tile) { return own_shared_in_grad(tile, d, kernel); };
  for (const AttentionTile& tile : tiles_to_try(lanes, shared))
    if (leaves_registers(dpas_grad_registers(tile, d, kernel, shared(tile))) &&
        tile.workgroup() <= simt::max_invocations(target) &&
        dpas_grad_bytes(tile, d, kernel) <= simt::workgroup_bytes(target))
      all.push_back(tile);
  return all;
}

// The choice, and with `all` what else there is room for.
std::vector<Fit> dpas_grad_fits(const CallView& call, const hal::DeviceInfo& target, bool all,
                                std::string& why) {
  if (why = unsupported_attention_dpas(call, target); !why.empty()) return {};
  const AttentionDims d = attention_dims(call);
  std::vector<Fit> fits = grad_fits(dpas_grad_tiles(call, GradKernel::dq, target),
                                    dpas_grad_tiles(call, GradKernel::dkv, target), d, target, all);
  if (fits.empty()) why = unsupported_heads(d, target);
  return fits;
}

Fit fit_dpas_grad(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  std::vector<Fit> fits = dpas_grad_fits(call, target, false, why);
  return fits.empty() ? Fit::no(why) : std::move(fits.front());
}
std::vector<Fit> dpas_grad_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  return dpas_grad_fits(call, target, true, why);
}

void encode_dpas_grad(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const auto defines = [&](const AttentionTile& tile, GradKernel kernel) {
    return std::vector<hal::Define>{simt::define("MATRIX_N", tile.lanes),
                                    simt::define("OWN_SHARED", own_shared_in_grad(tile, d, kernel)),
                                    simt::define("MOST_REGISTERS", 1)};
  };
  encode_attention_grad(args, "flash_attention_grad_dpas", defines, apart(d));
}

}  // namespace

kernels::Variant flash_attention_dpas_grad() {
  return {.name = "dpas",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on the matrix units of Intel's GPUs, by "
              "cl_intel_subgroup_matrix_multiply_accumulate: a lane owns rows, the other side is streamed "
              "past, probabilities in two parts",
          .fit = fit_dpas_grad,
          .encode = encode_dpas_grad,
          .alternatives = dpas_grad_alternatives,
          .low_precision = true,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
