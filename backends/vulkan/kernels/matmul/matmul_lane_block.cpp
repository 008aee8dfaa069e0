// Matmul for Vulkan on the host's cores: one subgroup per workgroup, no barriers.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "backends/simt/kernels/matmul/matmul.h"
#include "hal/binding.h"

namespace meshloom::backends::vulkan {
namespace {

using hal::ceil_div;
using hal::round_up;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;
using simt::define;

constexpr std::int64_t kLaneRowBlocks = 4, kLaneColumns = 4, kLaneDepth = 4;

std::array<std::int64_t, 3> lane_groups(const MatmulDims& d, std::int64_t lanes, std::int64_t row_blocks) {
  return {ceil_div(d.n, kLaneColumns * lanes), ceil_div(d.m, row_blocks * lanes), d.g};
}

// An operand in panels of `height` rows, so that lanes read a cache line at once and a workgroup reads consecutive lines. It is
// packed where K runs across the operand's rows (a line per step) or the rows share few sets of the caches, if the product
// repays it.
struct Panels {
  std::int64_t batches, rows, k, height;
  bool along_k;        // the operand's rows run along K
  std::int64_t other;  // rows of the other side in each product

  bool packed() const {
    return (!along_k || simt::rows_share_sets(k)) && simt::repays_packing(rows, other, floats());
  }
  std::int64_t floats() const { return batches * round_up(rows, height) * k; }
  std::int64_t bytes() const { return packed() ? simt::aligned(4 * floats()) : 0; }
};
struct LanePanels {
  Panels a, b;
};
LanePanels lane_panels(const MatmulDims& d, std::int64_t lanes, std::int64_t row_blocks) {
  return {{d.g, d.m, d.k, row_blocks * lanes, !d.trans_a, d.n},
          {d.g, d.n, d.k, kLaneColumns * lanes, d.trans_b, d.m}};
}
// Packs `from` to byte `at` of the workspace.
hal::Binding pack(const EncodeArgs& args, const Panels& panels, std::int64_t at, const hal::Binding& from,
                  std::int64_t lanes) {
  constexpr std::int64_t kPackedDepth = 256;  // of K, per workgroup
  const hal::Binding to = hal::slice(args.workspace, at, panels.bytes());
  simt::launch(args, {.kernel = "pack_panels",
                      .defines = {define("PANEL", panels.height)},
                      .width = static_cast<std::uint32_t>(lanes),
                      .groups = simt::matmul_groups({ceil_div(panels.k, kPackedDepth),
                                                     ceil_div(panels.rows, panels.height), panels.batches}),
                      .bindings = {reads(from), writes(to)},
                      .constants = {hal::word(panels.rows), hal::word(panels.k),
                                    hal::word(panels.along_k ? panels.k : std::int64_t{1}),
                                    hal::word(panels.along_k ? std::int64_t{1} : panels.rows),
                                    hal::word(kPackedDepth)}});
  return reads(to);
}

// A subgroup computes row_blocks * lanes rows of C.
Fit fit_lane_rows(const CallView& call, const hal::DeviceInfo& target, std::int64_t row_blocks) {
  const MatmulDims d = kernels::matmul_dims(call);
  const std::int64_t lanes = target.limits.subgroup;
  const std::string reason = simt::unsupported_matmul(call, target, lane_groups(d, lanes, row_blocks));
  if (!reason.empty()) return Fit::no(reason);
  std::int64_t depth =
      simt::k_depth(target, d.k, kLaneDepth, 1, kLaneDepth + row_blocks * lanes * kLaneColumns);
  const LanePanels panels = lane_panels(d, lanes, row_blocks);
  // Where K runs across the rows of B, the part of B that all columns need should stay in the L3 cache.
  constexpr std::int64_t kHeldFloats = 1 << 20, kMinDepth = 256;
  if (!d.trans_b && !panels.b.packed() && d.m > row_blocks * lanes)
    depth =
        std::min(depth, round_up(ceil_div(d.k, ceil_div(d.k, std::max(kMinDepth, kHeldFloats / d.n))), 16));
  return Fit::yes({{"lanes", lanes}, {"row_blocks", row_blocks}, {"depth", depth}},
                  simt::sums_bytes(d, depth) + panels.a.bytes() + panels.b.bytes());
}

Fit fit_lane_block(const CallView& call, const hal::DeviceInfo& target) {
  if (!target.is_cpu) return Fit::no("is only for Vulkan on a CPU");
  if (!target.has("subgroup-shuffle"))
    return Fit::no("needs subgroup shuffles, which the driver does not support");
  const std::int64_t lanes = target.limits.subgroup;
  if (lanes < 4 || lanes > 16)
    return Fit::no("needs subgroups of 4 to 16 invocations; the driver's have " + std::to_string(lanes));
  return fit_lane_rows(call, target, kernels::matmul_dims(call).m > lanes ? kLaneRowBlocks : 1);
}

std::vector<Fit> lane_block_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  for (std::int64_t row_blocks = 1; row_blocks <= kLaneRowBlocks; ++row_blocks)
    if (Fit fit = fit_lane_rows(call, target, row_blocks); fit.ok) result.push_back(std::move(fit));
  return result;
}

void encode_lane_block(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  const std::int64_t lanes = args.choice.params.at("lanes"), row_blocks = args.choice.params.at("row_blocks");
  const std::int64_t depth = args.choice.params.at("depth"), sums = simt::sums_bytes(d, depth);
  const LanePanels panels = lane_panels(d, lanes, row_blocks);
  std::optional<hal::Binding> a, b;
  if (panels.a.packed()) a = pack(args, panels.a, sums, args.inputs[0], lanes);
  if (panels.b.packed()) b = pack(args, panels.b, sums + panels.a.bytes(), args.inputs[1], lanes);
  if (a || b) args.commands.barrier();
  for (simt::KPart& part :
       simt::k_parts(args, d, depth, sums > 0 ? hal::slice(args.workspace, 0, sums) : args.workspace)) {
    if (part.begin > 0) args.commands.barrier();
    if (a) part.bindings[0] = *a;
    if (b) part.bindings[1] = *b;
    simt::launch(args, {.kernel = "matmul_lane_block",
                        .defines = {part.activation, define("ROW_BLOCKS", row_blocks),
                                    define("TN", kLaneColumns), define("DEPTH", kLaneDepth)},
                        .width = static_cast<std::uint32_t>(lanes),
                        .groups = simt::matmul_groups(lane_groups(d, lanes, row_blocks)),
                        .bindings = part.bindings,
                        .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), part.flags,
                                      hal::word(part.begin), hal::word(part.end),
                                      hal::word(std::int64_t{(a ? 1 : 0) + (b ? 2 : 0)})}});
  }
}

}  // namespace

kernels::Variant matmul_lane_block() {
  return {
      .name = "lane_block",
      .kinds = {hal::ProfileKind::host},
      .about =
          "rows and columns are one gather each, and rows are passed between a subgroup's lanes by shuffles",
      .fit = fit_lane_block,
      .encode = encode_lane_block,
      .alternatives = lane_block_alternatives};
}

}  // namespace meshloom::backends::vulkan
