// Matmul for OpenCL on the host's cores: few large invocations of vectors, no barriers.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "backends/simt/host/quirks.h"
#include "backends/simt/kernels/matmul/matmul.h"
#include "hal/binding.h"

namespace meshloom::backends::opencl {
namespace {

using hal::ceil_div;
using hal::round_up;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;
using simt::define;

// Rows of an operand that the kernel reads by columns. Where they share few sets of the caches, they are copied into rows that
// are a cache line longer, if the product repays it.
struct PaddedRows {
  std::int64_t rows, length;
  bool copied;
  std::int64_t stride() const { return copied ? length + 16 : length; }
  std::int64_t bytes() const { return copied ? simt::aligned(4 * rows * stride()) : 0; }
};
// `by_columns`: the kernel reads them so. Each of `batches` products has `other` rows on the other side.
PaddedRows padded(bool by_columns, std::int64_t batches, std::int64_t rows, std::int64_t length,
                  std::int64_t other) {
  return {batches * rows, length,
          by_columns && simt::rows_share_sets(length) &&
              simt::repays_packing(rows, other, batches * rows * (length + 16))};
}
// Copies `from` to byte `at` of the workspace.
hal::Binding pad(const EncodeArgs& args, const PaddedRows& rows, std::int64_t at, const hal::Binding& from) {
  const hal::Binding to = slice(args.workspace, at, rows.bytes());
  simt::launch(args, {.kernel = "pad_rows",
                      .width = 16,
                      .groups = {1, static_cast<std::uint32_t>(std::min<std::int64_t>(rows.rows, 65535)), 1},
                      .bindings = {reads(from), writes(to)},
                      .constants = {hal::word(rows.rows), hal::word(rows.length), hal::word(rows.stride())}});
  return reads(to);
}

constexpr std::int64_t kVecDepth = 256;  // 16 or 32 KiB of packed B: half of an L1 cache

// What an invocation computes: `rows` rows of C in blocks of `height`, by `panels` panels of `vectors` vectors.
struct VecTile {
  std::int64_t height, rows, vectors, panels;

  std::int64_t columns() const { return 16 * vectors * panels; }
  // The largest number of rows. Packed panels of B must serve many rows.
  static std::int64_t max_rows(std::int64_t height) { return height > 8 ? 240 : 120; }
  static VecTile of(const std::map<std::string, std::int64_t>& params) {
    const auto or_one =
        [&](const char* name) {  // choices tuned before there were several have no such parameter
          const auto found = params.find(name);
          return found == params.end() ? 1 : found->second;
        };
    return {params.at("height"), params.at("rows"), or_one("vectors"), or_one("panels")};
  }
};

// A transposed A is read by columns; another A by blocks of rows, of which eight may share a set of the cache.
PaddedRows vec_a(const MatmulDims& d, const VecTile& tile) {
  if (d.trans_a) return padded(true, d.g, d.k, d.m, d.n);
  return padded(tile.height > 8, d.g, d.m, d.k, d.n);
}

Fit fit_vec_tile(const CallView& call, const hal::DeviceInfo& target, const VecTile& tile) {
  const MatmulDims d = kernels::matmul_dims(call);
  const std::string reason =
      simt::unsupported_matmul(call, target, {ceil_div(d.n, tile.columns()), ceil_div(d.m, tile.rows), d.g});
  if (!reason.empty()) return Fit::no(reason);
  const std::int64_t per_step = tile.panels * (kVecDepth * (17 * tile.vectors + tile.rows / tile.height) +
                                               17 * tile.vectors * tile.rows);
  const std::int64_t depth = simt::k_depth(target, d.k, kVecDepth, per_step, 0);
  if (depth == 0) return Fit::no(simt::unsupported_iterations(target, static_cast<double>(per_step)));
  return Fit::yes({{"height", tile.height},
                   {"rows", tile.rows},
                   {"vectors", tile.vectors},
                   {"panels", tile.panels},
                   {"depth", depth}},
                  simt::sums_bytes(d, depth) + vec_a(d, tile).bytes());
}

// 32 vector registers of 16 lanes hold 12 x 2 vectors of sums; 16 registers of 8 lanes hold 6.
Fit fit_vec16(const CallView& call, const hal::DeviceInfo& target) {
  if (!target.is_cpu) return Fit::no("is only for OpenCL on a CPU");
  if (const simt::Quirks& quirks = simt::quirks_of(target.name); quirks.splits_vectors)
    return Fit::no(std::string(quirks.driver) +
                   " splits vectors, so that compiling this kernel takes minutes");
  const MatmulDims d = kernels::matmul_dims(call);
  const bool wide = target.profile.lanes >= 16;
  VecTile tile{wide ? 12 : 6, 0, wide && d.n > 16 ? 2 : 1, wide ? 4 : 1};
  // As much work per invocation as leaves several invocations for every core.
  const std::int64_t wanted = 4 * std::max(target.profile.cores, 1);
  tile.rows = round_up(ceil_div(d.m, ceil_div(d.m, VecTile::max_rows(tile.height))), tile.height);
  const auto too_few = [&] {
    return d.g * ceil_div(d.n, tile.columns()) * ceil_div(d.m, tile.rows) < wanted;
  };
  while (tile.panels > 1 && too_few()) tile.panels /= 2;
  while (tile.rows > 2 * tile.height && too_few()) tile.rows = round_up(tile.rows / 2, tile.height);
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
          if (rows % height != 0 || rows > VecTile::max_rows(height) || rows >= 2 * round_up(d.m, 12) ||
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
  const std::int64_t sums = simt::sums_bytes(d, p.at("depth"));
  const PaddedRows a = vec_a(d, tile);
  std::optional<hal::Binding> copy;
  if (a.copied) {
    copy = pad(args, a, sums, args.inputs[0]);
    args.commands.barrier();
  }
  for (simt::KPart& part : simt::k_parts(args, d, p.at("depth"),
                                         sums > 0 ? hal::slice(args.workspace, 0, sums) : args.workspace)) {
    if (part.begin > 0) args.commands.barrier();
    if (copy) part.bindings[0] = *copy;
    simt::launch(
        args, {.kernel = "matmul_vec16",
               .defines = {part.activation, define("TM", tile.height), define("KC", kVecDepth),
                           define("MC", VecTile::max_rows(tile.height)), define("VECTORS", tile.vectors),
                           define("PANELS", tile.panels), define("TRANS_A", d.trans_a),
                           define("TRANS_B", d.trans_b)},
               .width = 1,
               .groups = simt::matmul_groups({ceil_div(d.n, tile.columns()), ceil_div(d.m, tile.rows), d.g}),
               .bindings = part.bindings,
               .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), part.flags, hal::word(tile.rows),
                             hal::word(part.begin), hal::word(part.end), hal::word(a.stride())}});
  }
}

}  // namespace

kernels::Variant matmul_vec16() {
  return {
      .name = "vec16",
      .kinds = {hal::ProfileKind::host},
      .about = "16 packed columns of B per invocation times register blocks of A, for a core's vector unit",
      .fit = fit_vec16,
      .encode = encode_vec16,
      .alternatives = vec16_alternatives};
}

}  // namespace meshloom::backends::opencl
