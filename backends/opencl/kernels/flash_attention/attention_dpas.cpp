#include "backends/opencl/kernels/flash_attention/attention_dpas.h"

#include <array>

#include "hal/math.h"

namespace meshloom::backends::opencl {
namespace {

// Bytes of `bands` bands of eight rows of A, `depth` deep (dpas_tile.inc).
std::int64_t band_bytes(std::int64_t bands, std::int64_t depth) { return 4 * bands * (depth / 16 * 64 + 8); }

}  // namespace

std::string unsupported_attention_dpas(const kernels::CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_dpas(target, call.inputs[0].dtype); !reason.empty()) return reason;
  return unsupported_attention_call(call);
}

std::string unsupported_heads(const kernels::AttentionDims& d, const hal::DeviceInfo& target) {
  return "heads of " + std::to_string(d.d) + " and " + std::to_string(d.dv) +
         " features do not fit the registers of a lane and " + std::to_string(simt::workgroup_bytes(target)) +
         " bytes of workgroup memory";
}

std::vector<AttentionTile> tiles_to_try(std::int64_t lanes,
                                        const std::function<bool(const AttentionTile&)>& own_shared) {
  std::vector<AttentionTile> all;
  for (const std::int64_t row_matrices : lanes == 8 ? std::array{2, 1} : std::array{1, 2})
    for (const bool shared : {false, true})
      for (const std::int64_t warps : {16, 8, 4, 2})
        for (const std::int64_t streamed : {32, 16}) {
          const AttentionTile tile{warps, row_matrices, streamed, lanes};
          if (own_shared(tile) == shared) all.push_back(tile);
        }
  return all;
}

std::int64_t rows_bytes(const AttentionTile& tile, std::int64_t features) {
  return band_bytes(tile.streamed / 8, AttentionTile::padded(features));
}
std::int64_t pairs_bytes(const AttentionTile& tile, std::int64_t features) {
  return band_bytes(features / 8, tile.streamed);
}

std::int64_t registers_of_tile(const AttentionTile& tile, const kernels::AttentionDims& d) {
  return 4 * (hal::ceil_div(tile.streamed * AttentionTile::padded(d.d) / 8, tile.workgroup()) +
              2 * hal::ceil_div(tile.streamed / 2 * d.dv / 8, tile.workgroup()));
}

}  // namespace meshloom::backends::opencl
