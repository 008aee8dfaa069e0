// Attention forward of 16-bit floats on NVIDIA's tensor cores, by PTX within OpenCL C.
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

// A lane's registers for sums, queries and scores, beside which there is room for the rest: by what the assembler spills.
std::int64_t forward_registers(const AttentionTile& tile, const AttentionDims& d) {
  return tile.row_matrices *
         (AttentionTile::padded(d.dv) / 2 + AttentionTile::padded(d.d) / 4 + tile.streamed / 2);
}
bool fits_registers(const AttentionTile& tile, const AttentionDims& d) {
  const std::int64_t held = forward_registers(tile, d);
  return held <= (tile.row_matrices > 1 ? 140 : 200) && held + registers_of_copies(tile, d) <= 232;
}

// As flash_attention_ptx_mma.cl lays out its memory.
std::int64_t forward_bytes(const AttentionTile& tile, const AttentionDims& d) {
  const std::int64_t x = AttentionTile::stride(d.d), y = AttentionTile::stride(d.dv);
  return 16 * std::max(2 * tile.streamed * (x + y), tile.rows() * std::max(x, y));
}

// Row matrices and warps, of equal numbers of rows the better first: two matrices share what is loaded of keys, but few warps do
// not hide how long loads take.
constexpr std::pair<int, int> kOwnRows[] = {{2, 4}, {1, 8}, {1, 4}, {2, 2}, {1, 2}, {2, 1}, {1, 1}};

// Every tile that the device has room for; `why` not, where there is none.
std::vector<AttentionTile> forward_tiles(const CallView& call, const hal::DeviceInfo& target,
                                         std::string& why) {
  std::vector<AttentionTile> all;
  if (why = unsupported_attention(call, target); !why.empty()) return all;
  const AttentionDims d = attention_dims(call);
  const std::int64_t limit = simt::workgroup_bytes(target);
  for (const auto& [row_matrices, warps] : kOwnRows) {
    // Wider heads leave registers to more warps with tiles of 32 keys.
    const bool narrow = AttentionTile::padded(std::max(d.d, d.dv)) <= 64;
    for (const std::int64_t streamed : {narrow ? 64 : 32, narrow ? 32 : 64, 16}) {
      const AttentionTile tile{warps, row_matrices, streamed};
      if (row_matrices > 1 && streamed < 32) continue;
      if (fits_registers(tile, d) && tile.workgroup() <= simt::max_invocations(target) &&
          forward_bytes(tile, d) <= limit)
        all.push_back(tile);
    }
  }
  if (all.empty())
    why = "heads of " + std::to_string(d.d) + " and " + std::to_string(d.dv) +
          " features do not fit the registers of a lane and " + std::to_string(limit) +
          " bytes of workgroup memory";
  return all;
}

Fit fit_mma(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  const std::vector<AttentionTile> tiles = forward_tiles(call, target, why);
  return forward_fit(tiles, why, call, target);
}

std::vector<Fit> mma_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  return forward_fits(forward_tiles(call, target, why), call);
}

void encode_mma(const EncodeArgs& args) { encode_forward(args, "flash_attention_ptx_mma"); }

}  // namespace

kernels::Variant flash_attention_ptx_mma() {
  return {
      .name = "ptx_mma",
      .kinds = {hal::ProfileKind::gpu},
      .about =
          "16-bit floats on NVIDIA's tensor cores, by PTX that its OpenCL compiler takes: a warp owns rows, "
          "keys are streamed past, probabilities in two parts",
      .fit = fit_mma,
      .encode = encode_mma,
      .alternatives = mma_alternatives,
      .low_precision = true,
      .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
