// Attention backward of 16-bit floats on NVIDIA's tensor cores, by PTX within OpenCL C: a kernel for dq, and one for dk and dv.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backends/simt/kernels/flash_attention/flash_attention_common.h"
#include "backends/simt/variants.h"

namespace meshloom::backends::opencl {
namespace ptx_mma_grad {  // the forward pass has tiles too
namespace {

using hal::ceil_div;
using hal::round_up;
using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kRows = 16;  // of a matrix
// Registers of an invocation for sums and own rows, beside which there is room for the rest.
constexpr std::int64_t kMaxHeld = 192;

enum class Kernel { dq, dkv };

std::int64_t padded(std::int64_t features) { return round_up(features, 16); }

// A workgroup of `warps`, each with `matrices` x 16 rows of its own, past which tiles of `streamed` rows go.
struct Tile {
  std::int64_t warps, matrices, streamed;

  std::int64_t rows() const { return warps * matrices * kRows; }
  std::int64_t workgroup() const { return warps * kWarp; }
  // An invocation's registers for sums, and for own rows of so many features.
  std::int64_t sums(const AttentionDims& d, Kernel kernel) const {
    return matrices * (padded(d.d) + (kernel == Kernel::dkv ? padded(d.dv) : 0)) / 2;
  }
  std::int64_t held(std::int64_t features) const { return matrices * padded(features) / 4; }
  // As flash_attention_grad_ptx_mma.cl lays out its memory, in chunks of 16 bytes.
  std::int64_t shared_bytes(const AttentionDims& d, Kernel kernel) const {
    const auto stride = [](std::int64_t features) { return padded(features) / 8 | 1; };
    const std::int64_t x = stride(d.d), y = stride(d.dv);
    const std::int64_t tile = streamed * (x + y) + (kernel == Kernel::dkv ? streamed / 2 : 0);
    return 16 * std::max(2 * tile, rows() * std::max(x, y));
  }
  std::map<std::string, std::int64_t> params() const {
    return {{"warps", warps}, {"matrices", matrices}, {"streamed", streamed}};
  }
  static Tile of(const std::map<std::string, std::int64_t>& p) {
    return {p.at("warps"), p.at("matrices"), p.at("streamed")};
  }
};

std::string unsupported_call(const CallView& call, const hal::DeviceInfo& target) {
  const hal::DType in = call.inputs[0].dtype;
  if (!hal::is_low_precision(in))
    return "multiplies f16 and bf16 only, not " + std::string(hal::to_string(in));
  const std::vector<hal::MatrixShape>& shapes = target.limits.matrix_shapes;
  if (std::find(shapes.begin(), shapes.end(), hal::MatrixShape{16, 8, 16, in, hal::DType::f32}) == shapes.end())
    return "needs an NVIDIA device of compute capability 8.0 or more; this one is " + target.name;
  const AttentionDims d = attention_dims(call);
  if (d.rng_state >= 0) return "drops no probabilities";
  for (const std::int64_t features : {d.d, d.dv})
    if (features % 8 != 0)
      return "loads eight features at a time, which heads of " + std::to_string(features) + " are no multiple of";
  return simt::unsupported_attention_size(call);
}

std::string unsupported_tile(const Tile& tile, const AttentionDims& d, const hal::DeviceInfo& target) {
  const std::string heads = "heads of " + std::to_string(d.d) + " and " + std::to_string(d.dv) + " features do not fit the ";
  if (tile.sums(d, Kernel::dkv) + tile.held(d.d) + tile.held(d.dv) > kMaxHeld) return heads + "registers of a warp";
  const std::int64_t bytes = std::max(tile.shared_bytes(d, Kernel::dq), tile.shared_bytes(d, Kernel::dkv));
  if (bytes > simt::workgroup_bytes(target))
    return heads + std::to_string(simt::workgroup_bytes(target)) + " bytes of workgroup memory";
  if (tile.workgroup() > simt::max_invocations(target))
    return "the device's workgroups have at most " + std::to_string(simt::max_invocations(target)) + " invocations";
  return simt::unsupported_workspace(simt::grad_workspace(d, true, tile.rows()));
}

// Every tile the device has room for, what should be fastest first; `why` not, where there is none.
std::vector<Tile> tiles(const CallView& call, const hal::DeviceInfo& target, std::string& why) {
  std::vector<Tile> result;
  if (why = unsupported_call(call, target); !why.empty()) return result;
  const AttentionDims d = attention_dims(call);
  for (const std::int64_t warps : {4, 2, 1, 8})
    for (const std::int64_t matrices : {1, 2})
      for (const std::int64_t streamed : {32, 16, 64}) {
        const Tile tile{warps, matrices, streamed};
        if (why = unsupported_tile(tile, d, target); why.empty()) result.push_back(tile);
      }
  return result;
}

Fit fit_tile(const Tile& tile, const AttentionDims& d) {
  return Fit::yes(tile.params(), simt::grad_workspace(d, true, tile.rows()));
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  const std::vector<Tile> all = tiles(call, target, why);
  if (all.empty()) return Fit::no(why);
  const AttentionDims d = attention_dims(call);
  // The first of which no warp would be idle.
  const auto chosen = std::find_if(all.begin(), all.end(), [&](const Tile& tile) {
    return tile.rows() < std::max(d.s, d.t) + kRows;
  });
  return fit_tile(chosen == all.end() ? all.back() : *chosen, d);
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  std::vector<Fit> result;
  for (const Tile& tile : tiles(call, target, why)) result.push_back(fit_tile(tile, attention_dims(call)));
  return result;
}

// A kernel over own rows of `heads` heads, `length` rows each.
simt::Launch over_rows(const EncodeArgs& args, const AttentionDims& d, Kernel kernel) {
  const Tile tile = Tile::of(args.choice.params);
  const bool dkv = kernel == Kernel::dkv;
  simt::Launch command{.kernel = "flash_attention_grad_ptx_mma",
                       .defines = {simt::define("COMPUTE_DKV", dkv),
                                   simt::define("AB_TYPE", simt::dtype_code(args.call.inputs[0].dtype)),
                                   simt::define("ROW_MATRICES", tile.matrices),
                                   simt::define("WARPS", tile.warps),
                                   simt::define("BC", tile.streamed),
                                   simt::define("D", d.d),
                                   simt::define("DV", d.dv),
                                   simt::define("DP", padded(d.d)),
                                   simt::define("DVP", padded(d.dv)),
                                   simt::define("PARTS", 2),
                                   simt::define("PRESENT", simt::present_options(d)),
                                   {"SOFT_CAP", d.soft_cap > 0 ? "true" : "false"}},
                       .width = static_cast<std::uint32_t>(tile.workgroup())};
  simt::add_bias_and_bitmask_defines(command.defines, d, tile.rows());
  const std::int64_t heads = dkv ? d.kv : d.h, blocks = ceil_div(dkv ? d.t : d.s, tile.rows());
  command.groups = simt::grid(d.b * heads * blocks, 1);
  command.constants = simt::attention_constants(d, blocks, heads);
  simt::add_extra_constants(command.constants, d, simt::grad_extras_at(d));
  return command;
}

void encode(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const simt::Launch delta{.kernel = "flash_attention_delta_halves",
                           .defines = {{"BF16", args.call.inputs[0].dtype == hal::DType::bf16 ? "1" : "0"}}};
  simt::launch_grad(args, d, true, Tile::of(args.choice.params).rows(), over_rows(args, d, Kernel::dq),
                    over_rows(args, d, Kernel::dkv), delta);
}

}  // namespace
}  // namespace ptx_mma_grad

kernels::Variant flash_attention_ptx_mma_grad() {
  return {.name = "ptx_mma",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on NVIDIA's tensor cores, by PTX that its OpenCL compiler takes: a warp owns rows, the "
              "other side is streamed past, probabilities in two parts",
          .fit = ptx_mma_grad::fit,
          .encode = ptx_mma_grad::encode,
          .alternatives = ptx_mma_grad::alternatives,
          .low_precision = true,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
