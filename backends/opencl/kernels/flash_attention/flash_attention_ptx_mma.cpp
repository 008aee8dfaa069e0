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

Fit fit_forward_tile(const AttentionTile& tile, const AttentionDims& d) {
  const std::int64_t workspace = simt::extras_bytes(d, tile.rows());
  if (std::string reason = simt::unsupported_workspace(workspace); !reason.empty())
    return Fit::no(std::move(reason));
  return Fit::yes(tile.params(), workspace);
}

Fit fit_forward(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  const std::vector<AttentionTile> all = forward_tiles(call, target, why);
  if (all.empty()) return Fit::no(why);
  const AttentionDims d = attention_dims(call);
  return fit_forward_tile(*std::min_element(all.begin(), all.end(),
                                            [&](const AttentionTile& x, const AttentionTile& y) {
                                              return busiest_core(x, d.b * d.h, d.s, target) <
                                                     busiest_core(y, d.b * d.h, d.s, target);
                                            }),
                          d);
}

std::vector<Fit> forward_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  std::vector<Fit> result;
  const AttentionDims d = attention_dims(call);
  for (const AttentionTile& tile : forward_tiles(call, target, why))
    if (Fit fit = fit_forward_tile(tile, d); fit.ok) result.push_back(std::move(fit));
  return result;
}

void encode_forward(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const AttentionTile tile = AttentionTile::of(args.choice.params);
  if (simt::extras_bytes(d, tile.rows()) > 0) {
    simt::copy_extras(args, d, 0, tile.rows());
    args.commands.barrier();
  }
  simt::Launch command = over_own_rows(args, d, tile, "flash_attention_ptx_mma", d.h, d.s, 0, tile.rows());
  for (std::size_t i = 0; i < 3; ++i) command.bindings.push_back(reads(args.inputs[i]));
  simt::bind_extras(command, args, d, tile.rows());
  for (const hal::Binding& output : args.outputs) command.bindings.push_back(writes(output));
  simt::launch(args, command);
}

}  // namespace

kernels::Variant flash_attention_ptx_mma() {
  return {
      .name = "ptx_mma",
      .kinds = {hal::ProfileKind::gpu},
      .about =
          "16-bit floats on NVIDIA's tensor cores, by PTX that its OpenCL compiler takes: a warp owns rows, "
          "keys are streamed past, probabilities in two parts",
      .fit = fit_forward,
      .encode = encode_forward,
      .alternatives = forward_alternatives,
      .low_precision = true,
      .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
