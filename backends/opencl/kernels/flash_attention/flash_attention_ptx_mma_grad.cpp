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

// A lane's registers for sums, own rows and scores, beside which there is room for the rest: by what the assembler spills.
std::int64_t backward_registers(const AttentionTile& tile, const AttentionDims& d, GradKernel kernel) {
  const std::int64_t x = AttentionTile::padded(d.d), y = AttentionTile::padded(d.dv);
  return tile.row_matrices * ((kernel == GradKernel::dq ? x : x + y) / 2 + (x + y) / 4 + tile.streamed);
}
bool fits_backward_registers(const AttentionTile& tile, const AttentionDims& d, GradKernel kernel) {
  const std::int64_t held = backward_registers(tile, d, kernel);
  const std::int64_t all = held + registers_of_copies(tile, d);
  if (kernel == GradKernel::dq) return held <= 160 && all <= 200;
  return held <= (tile.streamed > 16 || tile.row_matrices > 1 ? 144 : 208) && all <= 216;
}

// As flash_attention_grad_ptx_mma.cl lays out its memory.
std::int64_t backward_bytes(const AttentionTile& tile, const AttentionDims& d, GradKernel kernel) {
  const std::int64_t x = AttentionTile::stride(d.d), y = AttentionTile::stride(d.dv);
  const std::int64_t scalars = kernel == GradKernel::dq ? 0 : tile.streamed / 2;
  return 16 * std::max(2 * (tile.streamed * (x + y) + scalars), tile.rows() * std::max(x, y));
}

// Every tile that the device has room for. A warp of 32 rows reads half as much of workgroup memory as two of 16.
std::vector<AttentionTile> backward_tiles(const AttentionDims& d, GradKernel kernel,
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

// The choice, and with `all` what else there is room for.
std::vector<Fit> backward_fits(const CallView& call, const hal::DeviceInfo& target, bool all,
                               std::string& why) {
  if (why = unsupported_attention(call, target); !why.empty()) return {};
  const AttentionDims d = attention_dims(call);
  const std::vector<AttentionTile> dq = backward_tiles(d, GradKernel::dq, target),
                                   dkv = backward_tiles(d, GradKernel::dkv, target);
  if (dq.empty() || dkv.empty())
    why = "heads of " + std::to_string(d.d) + " and " + std::to_string(d.dv) +
          " features do not fit the registers of a lane and " +
          std::to_string(simt::workgroup_bytes(target)) + " bytes of workgroup memory";
  return grad_fits(dq, dkv, d, target, all);
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

void encode_backward(const EncodeArgs& args) { encode_attention_grad(args, "flash_attention_grad_ptx_mma"); }

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
