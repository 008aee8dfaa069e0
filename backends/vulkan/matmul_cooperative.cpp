// Matmul of 16-bit floats on the matrix unit.
#include <algorithm>
#include <span>
#include <utility>

#include "backends/simt/matmul.h"
#include "backends/vulkan/cooperative.h"
#include "backends/vulkan/variants.h"

namespace meshloom::backends::vulkan {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;
using simt::ceil_div;
using simt::define;

// What a workgroup computes: bm x bn of C by rows x columns subgroups, bk deep at a time.
struct Block {
  std::int64_t bm, bn, rows, columns, bk;
};
// Largest first: a large block reads less, a small one leaves work for every core.
constexpr Block kBlocks[] = {{256, 128, 4, 2, 32}, {128, 256, 2, 4, 32}, {128, 128, 2, 2, 32},
                             {64, 128, 1, 2, 32},  {128, 64, 2, 1, 32},  {64, 64, 2, 2, 32},
                             {64, 32, 2, 1, 32},   {32, 64, 1, 2, 32},   {32, 32, 1, 1, 32},
                             {16, 64, 1, 2, 32},   {16, 32, 1, 1, 32},   {16, 16, 1, 1, 16}};
// Emulated matrices are compiled element by element.
constexpr Block kHostBlocks[] = {{16, 32, 1, 2, 16}, {32, 16, 2, 1, 32}, {16, 16, 2, 2, 8}};

// A block cut into matrices of the device.
struct Tile {
  hal::MatrixShape shape;
  std::int64_t lanes, rows, columns, fm, fn, bk;

  std::int64_t bm() const { return rows * fm * shape.m; }
  std::int64_t bn() const { return columns * fn * shape.n; }
  std::int64_t workgroup() const { return rows * columns * lanes; }
  // Both tiles in either layout, each row with a word of eight elements more, and a matrix of sums per
  // subgroup.
  std::int64_t shared_bytes(const MatmulDims& d) const {
    const std::int64_t a = d.trans_a ? bk * (bm() + 8) : bm() * (bk + 8);
    const std::int64_t b = d.trans_b ? bn() * (bk + 8) : bk * (bn() + 8);
    return 2 * (a + b) + 4 * rows * columns * shape.m * shape.n;
  }
  // Loop iterations of one invocation for a step of bk, and those of the end (see simt::most_iterations).
  std::int64_t iterations() const {
    const std::int64_t loads = ceil_div(bm() * bk, 8 * workgroup()) + ceil_div(bn() * bk, 8 * workgroup());
    return 1 + 2 * loads + bk / shape.k * (1 + fm + fn + fm * fn);
  }
  std::int64_t end_iterations() const { return fm * fn * (2 + ceil_div(shape.m * shape.n, lanes)); }
  std::array<std::int64_t, 3> groups(const MatmulDims& d) const {
    return {ceil_div(d.n, bn()), ceil_div(d.m, bm()), d.g};
  }
};

// The tiles of a shape that the device has room for, largest first.
std::vector<Tile> tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape, std::int64_t lanes,
                        const MatmulDims& dims) {
  std::vector<Tile> result;
  for (const Block& block :
       target.is_cpu ? std::span<const Block>(kHostBlocks) : std::span<const Block>(kBlocks)) {
    if (block.bm % (block.rows * shape.m) != 0 || block.bn % (block.columns * shape.n) != 0) continue;
    Tile tile{shape,
              lanes,
              block.rows,
              block.columns,
              block.bm / (block.rows * shape.m),
              block.bn / (block.columns * shape.n),
              std::max<std::int64_t>(block.bk, shape.k)};
    if (tile.bk % shape.k != 0 || tile.fm * tile.fn * shape.m * shape.n > most_sums(lanes) * lanes) continue;
    if (tile.workgroup() > target.limits.max_workgroup ||
        tile.shared_bytes(dims) > target.limits.max_local_bytes)
      continue;
    result.push_back(tile);
  }
  return result;
}

Fit fit_tile(const CallView& call, const hal::DeviceInfo& target, const Tile& tile) {
  const MatmulDims d = kernels::matmul_dims(call);
  if (const std::string reason = simt::too_many_groups(target, tile.groups(d)); !reason.empty())
    return Fit::no(reason);
  const std::int64_t depth = simt::k_depth(target, d.k, tile.bk, tile.iterations(), tile.end_iterations());
  if (depth == 0)
    return Fit::no(simt::too_long(target, static_cast<double>(tile.iterations() + tile.end_iterations())));
  return Fit::yes({{"m", tile.shape.m},
                   {"n", tile.shape.n},
                   {"k", tile.shape.k},
                   {"lanes", tile.lanes},
                   {"rows", tile.rows},
                   {"columns", tile.columns},
                   {"fm", tile.fm},
                   {"fn", tile.fn},
                   {"bk", tile.bk},
                   {"depth", depth}},
                  simt::sums_bytes(d, depth));
}

std::string unfit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = no_cooperative_shapes(target, call.inputs[0].dtype); !reason.empty())
    return reason;
  return simt::indexable(call);
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (const std::string reason = unfit(call, target); !reason.empty()) return Fit::no(reason);
  const MatmulDims d = kernels::matmul_dims(call);
  const std::vector<hal::MatrixShape> shapes = cooperative_shapes(target, call.inputs[0].dtype);
  for (const hal::MatrixShape& shape : shapes) {
    const Tile* chosen = nullptr;
    const std::vector<Tile> all = tiles(target, shape, subgroup_choices(target, shape).front(), d);
    for (const Tile& tile : all) {
      // More than twice what there is to compute, or too few workgroups for the cores: the next smaller one.
      const bool wide = chosen && (chosen->bm() >= 2 * d.m || chosen->bn() >= 2 * d.n);
      const bool few = chosen && chosen->groups(d)[0] * chosen->groups(d)[1] * d.g < target.profile.cores;
      if (!chosen || wide || few) chosen = &tile;
    }
    if (chosen) return fit_tile(call, target, *chosen);
  }
  return Fit::no("no tile of the driver's matrices (" + to_string(shapes.front()) +
                 ", ...) fits its workgroups of " + std::to_string(target.limits.max_workgroup) + " and " +
                 std::to_string(target.limits.max_local_bytes) + " bytes");
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unfit(call, target).empty()) return result;
  const MatmulDims d = kernels::matmul_dims(call);
  for (const hal::MatrixShape& shape : cooperative_shapes(target, call.inputs[0].dtype))
    for (const std::int64_t lanes : subgroup_choices(target, shape))
      for (const Tile& tile : tiles(target, shape, lanes, d))
        if (Fit fit = fit_tile(call, target, tile); fit.ok) result.push_back(std::move(fit));
  return result;
}

void encode(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  const auto& p = args.choice.params;
  const hal::DeviceInfo& target = args.device.info();
  const auto extent = [&](const char* name) { return static_cast<std::int32_t>(p.at(name)); };
  const Tile tile{{extent("m"), extent("n"), extent("k"), args.call.inputs[0].dtype, hal::DType::f32},
                  p.at("lanes"),
                  p.at("rows"),
                  p.at("columns"),
                  p.at("fm"),
                  p.at("fn"),
                  p.at("bk")};
  std::vector<hal::Define> defines = cooperative_defines(tile.shape, tile.lanes);
  for (const hal::Define& item :
       {define("SUBGROUPS_M", tile.rows), define("SUBGROUPS_N", tile.columns), define("MATRICES_M", tile.fm),
        define("MATRICES_N", tile.fn), define("BK", tile.bk), define("TRANS_A", d.trans_a),
        define("TRANS_B", d.trans_b), define("WIDE_A", (d.trans_a ? d.m : d.k) % 8 == 0),
        define("WIDE_B", (d.trans_b ? d.k : d.n) % 8 == 0)})
    defines.push_back(item);
  for (const simt::KPart& part : simt::k_parts(args, d, p.at("depth"), args.workspace)) {
    if (part.begin > 0) args.commands.barrier();
    const bool last = part.end == d.k;
    simt::Launch command{.kernel = "matmul_cooperative",
                         .defines = defines,
                         .width = static_cast<std::uint32_t>(tile.workgroup()),
                         .groups = simt::matmul_groups(tile.groups(d)),
                         .bindings = part.bindings,
                         .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), part.flags,
                                       hal::word(part.begin), hal::word(part.end)},
                         .subgroup = required_subgroup(target, tile.lanes)};
    command.defines.push_back(part.activation);
    command.defines.push_back(define("C_TYPE", last ? simt::dtype_code(args.call.outputs[0].dtype) : 0));
    simt::launch(args, command);
  }
}

}  // namespace

void add_matmul_cooperative(kernels::Catalog& catalog) {
  catalog.add(kernels::Variant{.op = "matmul",
                               .backend = "vulkan",
                               .name = "cooperative",
                               .kinds = {hal::ProfileKind::gpu},
                               .rank = 20,
                               .about = "16-bit floats on the matrix unit: a subgroup multiplies whole "
                                        "matrices, read from memory as they lie there",
                               .fit = fit,
                               .encode = encode,
                               .alternatives = alternatives,
                               .narrow = true,
                               .needs_proof = true});
}

}  // namespace meshloom::backends::vulkan
