// What the variants of attention on NVIDIA's and Intel's matrix units share on the host (attention_matrix.inc).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/simt/kernels/flash_attention/flash_attention_common.h"

namespace meshloom::backends::opencl {

// A workgroup: `warps` with `row_matrices` matrices of rows of their own each, past which tiles of `streamed` rows of the other side
// go. A warp of 32 lanes is NVIDIA's, whose matrices have 16 rows; Intel's subgroups of 8 or 16 lanes have a row per lane.
struct AttentionTile {
  std::int64_t warps, row_matrices, streamed, lanes = 32;

  std::int64_t warp_rows() const { return row_matrices * (lanes == 32 ? 16 : lanes); }
  std::int64_t rows() const { return warps * warp_rows(); }
  std::int64_t workgroup() const { return warps * lanes; }
  // Features of a head in a tile, and the words of 16 bytes from one row to the next.
  static std::int64_t padded(std::int64_t features) { return hal::round_up(features, 16); }
  static std::int64_t stride(std::int64_t features) { return padded(features) / 8 | 1; }

  std::map<std::string, std::int64_t> params() const {
    std::map<std::string, std::int64_t> all{
        {"warps", warps}, {"row_matrices", row_matrices}, {"streamed", streamed}};
    if (lanes != 32) all["lanes"] = lanes;
    return all;
  }
  bool operator==(const AttentionTile&) const = default;
  static AttentionTile of(const std::map<std::string, std::int64_t>& p) {
    const auto lanes = p.find("lanes");
    return {p.at("warps"), p.at("row_matrices"), p.at("streamed"), lanes == p.end() ? 32 : lanes->second};
  }
};

// The reason why no kernel here computes the call, whatever its tile and the device, or "".
std::string unsupported_attention_call(const kernels::CallView& call);
// The same on NVIDIA's GPUs.
std::string unsupported_attention(const kernels::CallView& call, const hal::DeviceInfo& target);

// Registers of an invocation for the addresses of its copies of a tile, each of which takes up to four.
std::int64_t registers_of_copies(const AttentionTile& tile, const kernels::AttentionDims& d);
// How long the busiest core is at work on `length` own rows of each of so many heads of all batch rows.
std::int64_t busiest_core(const AttentionTile& tile, std::int64_t batch_heads, std::int64_t length,
                          const hal::DeviceInfo& target);

// How the forward pass runs by each of the tiles: `with` are parameters beside the tile's.
std::vector<kernels::Fit> forward_fits(const std::vector<AttentionTile>& tiles, const kernels::CallView& call,
                                       const std::map<std::string, std::int64_t>& with = {});
// The same by the one of them with which the busiest core is done first; no, with `why`, where there is none.
kernels::Fit forward_fit(const std::vector<AttentionTile>& tiles, const std::string& why,
                         const kernels::CallView& call, const hal::DeviceInfo& target,
                         const std::map<std::string, std::int64_t>& with = {});
// The forward pass by the kernel with these defines beside those of all.
void encode_forward(const kernels::EncodeArgs& args, const std::string& kernel,
                    const std::vector<hal::Define>& defines = {});

// The two kernels of the backward pass: dq over queries, dk and dv over keys.
enum class GradKernel { dq, dkv };
// How the backward pass runs by the tiles of either with which the busiest core is done first, and with `all` by each other one too;
// none where one of them has no tile. The parameters of dk and dv have no prefix.
std::vector<kernels::Fit> grad_fits(const std::vector<AttentionTile>& dq,
                                    const std::vector<AttentionTile>& dkv, const kernels::AttentionDims& d,
                                    const hal::DeviceInfo& target, bool all);
// The backward pass by the kernel of this name, with COMPUTE_DKV, with these defines beside those of all. `apart`: dk and dv have kernels
// of their own (COMPUTE_DK, COMPUTE_DV).
void encode_attention_grad(
    const kernels::EncodeArgs& args, const std::string& kernel,
    const std::function<std::vector<hal::Define>(const AttentionTile&, GradKernel)>& defines = {},
    bool apart = false);

// A kernel over own rows of `heads` heads, `length` rows each, without bindings; the extras begin at byte `extras_at`. A bitmask
// is summed up by blocks of `summary_rows` queries.
simt::Launch over_own_rows(const kernels::EncodeArgs& args, const kernels::AttentionDims& d,
                           const AttentionTile& tile, const std::string& kernel, std::int64_t heads,
                           std::int64_t length, std::int64_t extras_at, std::int64_t summary_rows);

}  // namespace meshloom::backends::opencl
