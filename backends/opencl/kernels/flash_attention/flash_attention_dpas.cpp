// Attention forward of 16-bit floats on the matrix units of Intel's GPUs.
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/kernels/flash_attention/attention_dpas.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

// A lane's registers for sums, scores and the copies of the next tile, and for queries unless they stand in workgroup memory.
std::int64_t dpas_registers(const AttentionTile& tile, const AttentionDims& d, bool own_shared) {
  const std::int64_t own = own_shared ? 0 : AttentionTile::padded(d.d) / 2;
  return tile.row_matrices * (d.dv + tile.streamed + own) + registers_of_tile(tile, d);
}
bool own_shared(const AttentionTile& tile, const AttentionDims& d) {
  return !leaves_registers_to_own_rows(dpas_registers(tile, d, false));
}

// As flash_attention_dpas.cl lays out its memory.
std::int64_t dpas_bytes(const AttentionTile& tile, const AttentionDims& d) {
  const std::int64_t tiles = 2 * (rows_bytes(tile, d.d) + pairs_bytes(tile, d.dv));
  return tiles + (own_shared(tile, d) ? tile.rows() * AttentionTile::padded(d.d) * 2 : 0);
}

// Every tile that the device has room for; `why` not, where there is none.
std::vector<AttentionTile> dpas_tiles(const CallView& call, const hal::DeviceInfo& target, std::string& why) {
  std::vector<AttentionTile> all;
  if (why = unsupported_attention_dpas(call, target); !why.empty()) return all;
  const AttentionDims d = attention_dims(call);
  const std::int64_t lanes = find_dpas(target, call.inputs[0].dtype)->n;
  const auto shared = [&](const AttentionTile& tile) { return own_shared(tile, d); };
  for (const AttentionTile& tile : tiles_to_try(lanes, shared))
    if (leaves_registers(dpas_registers(tile, d, shared(tile))) &&
        tile.workgroup() <= simt::max_invocations(target) &&
        dpas_bytes(tile, d) <= simt::workgroup_bytes(target))
      all.push_back(tile);
  if (all.empty()) why = unsupported_heads(d, target);
  return all;
}

Fit fit_dpas(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  const std::vector<AttentionTile> tiles = dpas_tiles(call, target, why);
  return forward_fit(tiles, why, call, target);
}

std::vector<Fit> dpas_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  return forward_fits(dpas_tiles(call, target, why), call);
}

void encode_dpas(const EncodeArgs& args) {
  const AttentionTile tile = AttentionTile::of(args.choice.params);
  encode_forward(args, "flash_attention_dpas",
                 {simt::define("MATRIX_N", tile.lanes),
                  simt::define("OWN_SHARED", own_shared(tile, attention_dims(args.call))),
                  simt::define("MOST_REGISTERS", 1)});
}

}  // namespace

kernels::Variant flash_attention_dpas() {
  return {.name = "dpas",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on the matrix units of Intel's GPUs, by "
              "cl_intel_subgroup_matrix_multiply_accumulate: a lane owns rows, keys are streamed past, "
              "probabilities in two parts",
          .fit = fit_dpas,
          .encode = encode_dpas,
          .alternatives = dpas_alternatives,
          .low_precision = true,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
