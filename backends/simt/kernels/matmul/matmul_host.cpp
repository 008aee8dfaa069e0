// Matmul for drivers that run on the host's cores: few, fat invocations, no barriers.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "backends/simt/kernels/matmul/matmul.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;

// Do rows so many floats apart lie in a few sets of the caches? A multiple of 2 KiB does.
bool in_few_sets(std::int64_t length) { return length % 512 == 0; }
// Does a product repay bringing `rows` of one side, `floats` in all, into another order? In it `other` rows
// meet these.
bool repays_copying(std::int64_t rows, std::int64_t other, std::int64_t floats) {
  constexpr std::int64_t kRepays = 128;
  return other >= kRepays && rows >= kRepays && floats <= std::numeric_limits<std::int32_t>::max();
}

// --- OpenCL: vectors of 16 ---
// Rows of an operand that a kernel walks across. Where they lie in few sets they are copied to rows that are
// a cache line longer, if the product repays it.
struct PaddedRows {
  std::int64_t rows, length;
  bool copied;
  std::int64_t stride() const { return copied ? length + 16 : length; }
  std::int64_t bytes() const { return copied ? aligned(4 * rows * stride()) : 0; }
};
// `walked`: the kernel does. In each of `batches` products `other` rows of the other side meet these.
PaddedRows padded(bool walked, std::int64_t batches, std::int64_t rows, std::int64_t length,
                  std::int64_t other) {
  return {batches * rows, length,
          walked && in_few_sets(length) && repays_copying(rows, other, batches * rows * (length + 16))};
}
// Copies `from` to byte `at` of the workspace.
hal::Binding pad(const EncodeArgs& args, const PaddedRows& rows, std::int64_t at, const hal::Binding& from) {
  const hal::Binding to = part(args.workspace, at, rows.bytes());
  launch(args, {.kernel = "pad_rows",
                .width = 16,
                .groups = {1, static_cast<std::uint32_t>(std::min<std::int64_t>(rows.rows, 65535)), 1},
                .bindings = {reading(from), writing(to)},
                .constants = {hal::word(rows.rows), hal::word(rows.length), hal::word(rows.stride())}});
  return reading(to);
}

constexpr std::int64_t kVecDepth = 256;  // 16 KiB of packed B, or 32 KiB: half of a first cache

// What an invocation computes: `rows` of C in blocks of `height`, `panels` panels of `vectors` vectors.
struct VecTile {
  std::int64_t height, rows, vectors, panels;

  std::int64_t columns() const { return 16 * vectors * panels; }
  // The most rows: what is packed of B must serve many.
  static std::int64_t most_rows(std::int64_t height) { return height > 8 ? 240 : 120; }
  static VecTile of(const std::map<std::string, std::int64_t>& params) {
    const auto or_one = [&](const char* name) {  // choices that were tuned before there were several
      const auto found = params.find(name);
      return found == params.end() ? 1 : found->second;
    };
    return {params.at("height"), params.at("rows"), or_one("vectors"), or_one("panels")};
  }
};

// A transposed is read column by column; else a block of rows at a time, of which eight may share a set.
PaddedRows vec_a(const MatmulDims& d, const VecTile& tile) {
  if (d.trans_a) return padded(true, d.g, d.k, d.m, d.n);
  return padded(tile.height > 8, d.g, d.m, d.k, d.n);
}

Fit fit_vec_tile(const CallView& call, const hal::DeviceInfo& target, const VecTile& tile) {
  const MatmulDims d = kernels::matmul_dims(call);
  const std::string reason =
      matmul_unfit(call, target, {ceil_div(d.n, tile.columns()), ceil_div(d.m, tile.rows), d.g});
  if (!reason.empty()) return Fit::no(reason);
  const std::int64_t per_step = tile.panels * (kVecDepth * (17 * tile.vectors + tile.rows / tile.height) +
                                               17 * tile.vectors * tile.rows);
  const std::int64_t depth = k_depth(target, d.k, kVecDepth, per_step, 0);
  if (depth == 0) return Fit::no(too_long(target, static_cast<double>(per_step)));
  return Fit::yes({{"height", tile.height},
                   {"rows", tile.rows},
                   {"vectors", tile.vectors},
                   {"panels", tile.panels},
                   {"depth", depth}},
                  sums_bytes(d, depth) + vec_a(d, tile).bytes());
}

// 32 vector registers of 16 lanes hold 12 x 2 vectors of sums, and so wide a core needs its block of A near;
// 16 of 8 lanes hold 6.
Fit fit_vec16(const CallView& call, const hal::DeviceInfo& target) {
  if (!target.is_cpu) return Fit::no("is for OpenCL on a CPU; this device has cores of its own");
  if (on_llvmpipe(target)) return Fit::no("llvmpipe takes vectors apart and would compile it for minutes");
  const MatmulDims d = kernels::matmul_dims(call);
  const bool wide = target.profile.lanes >= 16;
  VecTile tile{wide ? 12 : 6, 0, wide && d.n > 16 ? 2 : 1, wide ? 4 : 1};
  // As much per invocation as leaves every core a few of them.
  const std::int64_t wanted = 4 * std::max(target.profile.cores, 1);
  tile.rows = round_up(ceil_div(d.m, ceil_div(d.m, VecTile::most_rows(tile.height))), tile.height);
  const auto few = [&] { return d.g * ceil_div(d.n, tile.columns()) * ceil_div(d.m, tile.rows) < wanted; };
  while (tile.panels > 1 && few()) tile.panels /= 2;
  while (tile.rows > 2 * tile.height && few()) tile.rows = round_up(tile.rows / 2, tile.height);
  return fit_vec_tile(call, target, tile);
}

std::vector<Fit> vec16_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  const MatmulDims d = kernels::matmul_dims(call);
  for (const std::int64_t vectors : {1, 2})
    for (const std::int64_t panels : {1, 4})
      for (const std::int64_t height : {4, 6, 8, 12})
        for (const std::int64_t rows : {12, 24, 48, 120, 240}) {
          const VecTile tile{height, rows, vectors, panels};
          if (rows % height != 0 || rows > VecTile::most_rows(height) || rows >= 2 * round_up(d.m, 12) ||
              tile.columns() >= 2 * round_up(d.n, 16))
            continue;
          if (Fit fit = fit_vec_tile(call, target, tile); fit.ok) result.push_back(std::move(fit));
        }
  return result;
}

void encode_vec16(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  const auto& p = args.choice.params;
  const VecTile tile = VecTile::of(p);
  const std::int64_t sums = sums_bytes(d, p.at("depth"));
  const PaddedRows a = vec_a(d, tile);
  std::optional<hal::Binding> copy;
  if (a.copied) {
    copy = pad(args, a, sums, args.inputs[0]);
    args.commands.barrier();
  }
  for (KPart& part :
       k_parts(args, d, p.at("depth"), sums > 0 ? simt::part(args.workspace, 0, sums) : args.workspace)) {
    if (part.begin > 0) args.commands.barrier();
    if (copy) part.bindings[0] = *copy;
    launch(args,
           {.kernel = "matmul_vec16",
            .defines = {part.activation, define("TM", tile.height), define("KC", kVecDepth),
                        define("MC", VecTile::most_rows(tile.height)), define("VECTORS", tile.vectors),
                        define("PANELS", tile.panels), define("TRANS_A", d.trans_a),
                        define("TRANS_B", d.trans_b)},
            .width = 1,
            .groups = matmul_groups({ceil_div(d.n, tile.columns()), ceil_div(d.m, tile.rows), d.g}),
            .bindings = part.bindings,
            .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), part.flags, hal::word(tile.rows),
                          hal::word(part.begin), hal::word(part.end), hal::word(a.stride())}});
  }
}

// --- Vulkan: one subgroup per workgroup ---
constexpr std::int64_t kLaneRowBlocks = 4, kLaneColumns = 4, kLaneDepth = 4;

std::array<std::int64_t, 3> lane_groups(const MatmulDims& d, std::int64_t lanes, std::int64_t row_blocks) {
  return {ceil_div(d.n, kLaneColumns * lanes), ceil_div(d.m, row_blocks * lanes), d.g};
}

// An operand in panels of `height` rows: what lanes read at once lies in a cache line, what a workgroup reads
// in a row. Packed where K runs across the operand's rows, a line per step, or they lie in few sets; and
// where the product repays it.
struct Panels {
  std::int64_t batches, rows, k, height;
  bool along_k;        // the operand's own rows run along K
  std::int64_t other;  // rows of the other side that meet these in each product

  bool packed() const { return (!along_k || in_few_sets(k)) && repays_copying(rows, other, floats()); }
  std::int64_t floats() const { return batches * round_up(rows, height) * k; }
  std::int64_t bytes() const { return packed() ? aligned(4 * floats()) : 0; }
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
  constexpr std::int64_t kShare = 256;  // of K, per workgroup
  const hal::Binding to = part(args.workspace, at, panels.bytes());
  launch(args, {.kernel = "pack_panels",
                .defines = {define("PANEL", panels.height)},
                .width = static_cast<std::uint32_t>(lanes),
                .groups = matmul_groups(
                    {ceil_div(panels.k, kShare), ceil_div(panels.rows, panels.height), panels.batches}),
                .bindings = {reading(from), writing(to)},
                .constants = {hal::word(panels.rows), hal::word(panels.k),
                              hal::word(panels.along_k ? panels.k : std::int64_t{1}),
                              hal::word(panels.along_k ? std::int64_t{1} : panels.rows), hal::word(kShare)}});
  return reading(to);
}

// `row_blocks` times a subgroup's lanes are the rows of C per subgroup.
Fit fit_lane_rows(const CallView& call, const hal::DeviceInfo& target, std::int64_t row_blocks) {
  const MatmulDims d = kernels::matmul_dims(call);
  const std::int64_t lanes = target.limits.subgroup;
  const std::string reason = matmul_unfit(call, target, lane_groups(d, lanes, row_blocks));
  if (!reason.empty()) return Fit::no(reason);
  std::int64_t depth = k_depth(target, d.k, kLaneDepth, 1, kLaneDepth + row_blocks * lanes * kLaneColumns);
  const LanePanels panels = lane_panels(d, lanes, row_blocks);
  // Where K runs across the rows of B, what all columns need of it shall stay in the third-level cache.
  constexpr std::int64_t kHeldFloats = 1 << 20, kLeastDepth = 256;
  if (!d.trans_b && !panels.b.packed() && d.m > row_blocks * lanes)
    depth =
        std::min(depth, round_up(ceil_div(d.k, ceil_div(d.k, std::max(kLeastDepth, kHeldFloats / d.n))), 16));
  return Fit::yes({{"lanes", lanes}, {"row_blocks", row_blocks}, {"depth", depth}},
                  sums_bytes(d, depth) + panels.a.bytes() + panels.b.bytes());
}

Fit fit_lane_block(const CallView& call, const hal::DeviceInfo& target) {
  if (!target.is_cpu) return Fit::no("is for Vulkan on a CPU; this device has cores of its own");
  if (!target.has("subgroup-shuffle"))
    return Fit::no("needs subgroup shuffles, which the driver does not have");
  const std::int64_t lanes = target.limits.subgroup;
  if (lanes < 4 || lanes > 16)
    return Fit::no("is written for subgroups of 4 to 16, the driver's have " + std::to_string(lanes));
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
  const std::int64_t depth = args.choice.params.at("depth"), sums = sums_bytes(d, depth);
  const LanePanels panels = lane_panels(d, lanes, row_blocks);
  std::optional<hal::Binding> a, b;
  if (panels.a.packed()) a = pack(args, panels.a, sums, args.inputs[0], lanes);
  if (panels.b.packed()) b = pack(args, panels.b, sums + panels.a.bytes(), args.inputs[1], lanes);
  if (a || b) args.commands.barrier();
  for (KPart& part :
       k_parts(args, d, depth, sums > 0 ? simt::part(args.workspace, 0, sums) : args.workspace)) {
    if (part.begin > 0) args.commands.barrier();
    if (a) part.bindings[0] = *a;
    if (b) part.bindings[1] = *b;
    launch(args,
           {.kernel = "matmul_lane_block",
            .defines = {part.activation, define("ROW_BLOCKS", row_blocks), define("TN", kLaneColumns),
                        define("DEPTH", kLaneDepth)},
            .width = static_cast<std::uint32_t>(lanes),
            .groups = matmul_groups(lane_groups(d, lanes, row_blocks)),
            .bindings = part.bindings,
            .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), part.flags, hal::word(part.begin),
                          hal::word(part.end), hal::word(std::int64_t{(a ? 1 : 0) + (b ? 2 : 0)})}});
  }
}

}  // namespace

void add_matmul_host(kernels::Catalog& catalog, const std::string& backend) {
  kernels::Variant variant{.op = "matmul",
                           .backend = backend,
                           .name = {},
                           .kinds = {hal::ProfileKind::host},
                           .rank = 10,
                           .about = {},
                           .fit = nullptr,
                           .encode = nullptr,
                           .alternatives = nullptr};
  if (backend == "opencl") {
    variant.name = "vec16";
    variant.about =
        "16 packed columns of B per invocation against register blocks of A: the vector unit of a core";
    variant.fit = fit_vec16;
    variant.alternatives = vec16_alternatives;
    variant.encode = encode_vec16;
  } else {
    variant.name = "lane_block";
    variant.about =
        "a row and a column are one gather each, and rows go round a subgroup's lanes by shuffles";
    variant.fit = fit_lane_block;
    variant.alternatives = lane_block_alternatives;
    variant.encode = encode_lane_block;
  }
  catalog.add(std::move(variant));
}

}  // namespace meshloom::backends::simt
