#include "backends/simt/kernels/matmul/split_k.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace meshloom::backends::simt {
namespace {

using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;

// Workgroups per core: one waits for memory while the other multiplies. More would only make the second kernel slower.
constexpr std::int64_t kPerCore = 2;
// Steps of K of a part; fewer do not repay a second dispatch.
constexpr std::int64_t kMinSteps = 8;
// Limited, since the second kernel adds the parts one after the other.
constexpr std::int64_t kMaxParts = 64;
// What parts must gain where there are tiles for every core, but some cores have one more than others.
constexpr double kMinGain = 1.25;

std::int64_t elements(const MatmulDims& d) { return d.g * d.m * d.n; }

std::int64_t count(const Tiles& tiles) { return tiles.groups[0] * tiles.groups[1] * tiles.groups[2]; }

// How many of the tiles the busiest core computes, whose K is in so many parts.
double turns(const Tiles& tiles, std::int64_t parts, std::int64_t cores) {
  return static_cast<double>(ceil_div(count(tiles) * parts, std::max<std::int64_t>(cores, 1))) /
         static_cast<double>(parts);
}

// The smallest number of parts, up to `most`, with which cores are about evenly busy; 1 where that gains too little.
std::int64_t even_parts(const Tiles& tiles, std::int64_t most, std::int64_t cores) {
  constexpr double kAbout = 1.05;
  double best = turns(tiles, 1, cores);
  const double whole = best;
  for (std::int64_t parts = 2; parts <= most; ++parts) best = std::min(best, turns(tiles, parts, cores));
  if (whole < kMinGain * best) return 1;
  std::int64_t parts = 2;
  while (turns(tiles, parts, cores) > kAbout * best) ++parts;
  return parts;
}

// The number of parts of K that gives each core `per_core` workgroups, or about equal work; 1 where the tiles of C suffice or K is
// short.
std::int64_t parts_of_k(const MatmulDims& d, const hal::DeviceInfo& target, const Tiles& tiles,
                        std::int64_t depth, std::int64_t per_core) {
  const std::int64_t groups = count(tiles);
  const bool for_all = groups >= target.profile.cores;
  if (for_all && target.is_cpu) return 1;
  const std::int64_t steps = ceil_div(d.k, tiles.step);
  const std::int64_t room =
      std::min({steps / kMinSteps, target.limits.max_groups[2] / tiles.groups[2],
                // writing and reading all sums must not cost more than reading A and B
                d.k * (d.m + d.n) / (d.m * d.n), std::numeric_limits<std::int32_t>::max() / elements(d)});
  const std::int64_t wanted = for_all ? even_parts(tiles, std::min(room, kMaxParts), target.profile.cores)
                                      : std::min(per_core * target.profile.cores / groups, kMaxParts);
  if (for_all && wanted == 1) return 1;
  const std::int64_t parts = std::min(std::max(wanted, ceil_div(d.k, depth)), room);
  if (parts < 2) return 1;
  const std::int64_t each = ceil_div(steps, parts);
  return each * tiles.step <= depth ? ceil_div(steps, each) : 1;
}

// per_core 0: a single part.
Fit fit_parts(std::map<std::string, std::int64_t> params, const MatmulDims& d, const hal::DeviceInfo& target,
              const Tiles& tiles, std::int64_t per_core) {
  if (std::string reason = unsupported_groups(target, tiles.groups); !reason.empty())
    return Fit::no(std::move(reason));
  const std::int64_t depth = k_depth(target, d.k, tiles.step, tiles.per_step, tiles.fixed);
  if (depth == 0)
    return Fit::no(unsupported_iterations(target, static_cast<double>(tiles.per_step + tiles.fixed)));
  const std::int64_t parts = per_core > 0 ? parts_of_k(d, target, tiles, depth, per_core) : 1;
  params["depth"] = depth;
  if (parts == 1) return Fit::yes(std::move(params), sums_bytes(d, depth));
  params["parts"] = parts;  // absent for one part, as in choices tuned before there were parts
  return Fit::yes(std::move(params), 4 * parts * elements(d));
}

// All parts as one dispatch, which leaves their sums in the workspace.
KPart concurrent_parts(const EncodeArgs& args, MatmulDims dims, std::int64_t parts) {
  dims.bias = dims.residual = -1;
  dims.activation = kernels::Activation::none;
  EncodeArgs raw = args;
  raw.outputs = {&args.workspace, 1};
  KPart all = k_parts(raw, dims, dims.k, {}).front();
  all.flags.u |= static_cast<std::uint32_t>(parts) << 8;
  return all;
}

void split_k_reduce(const EncodeArgs& args, const MatmulDims& d, std::int64_t parts) {
  const hal::Binding sums = reads(args.workspace);
  const auto input = [&](int index) {
    return index < 0 ? sums : reads(whole_words(args.inputs[static_cast<std::size_t>(index)]));
  };
  launch(args, {.kernel = "split_k_reduce",
                .defines = {define("ACTIVATION", static_cast<std::int64_t>(d.activation)),
                            define("C_TYPE", dtype_code(args.call.outputs[0].dtype))},
                .bindings = {input(d.bias), input(d.residual), writes(whole_words(args.outputs[0])), sums},
                .constants = {hal::word(elements(d)), hal::word(d.n), hal::word(parts),
                              hal::word(std::int64_t{(d.bias >= 0 ? 1 : 0) + (d.residual >= 0 ? 2 : 0)})},
                .items = elements(d)});
}

}  // namespace

Fit fit_product(const std::map<std::string, std::int64_t>& params, const MatmulDims& dims,
                const hal::DeviceInfo& target, const Tiles& tiles) {
  return fit_parts(params, dims, target, tiles, kPerCore);
}

Fit fit_whole_product(const std::map<std::string, std::int64_t>& params, const MatmulDims& dims,
                      const hal::DeviceInfo& target, const Tiles& tiles) {
  return fit_parts(params, dims, target, tiles, 0);
}

Fit fit_product(const std::map<std::string, std::int64_t>& params, const Product& product,
                const hal::DeviceInfo& target, const Tiles& tiles) {
  return fit_parts(params, product.dims, target, tiles, product.use.may_split() ? kPerCore : 0);
}

double busiest_core(const MatmulDims& d, const hal::DeviceInfo& target, const Tiles& tiles,
                    std::int64_t tile_elements, const OwnPart& own, bool split) {
  constexpr double kReduction = 1.05;  // of the second kernel
  const std::int64_t depth = k_depth(target, d.k, tiles.step, tiles.per_step, tiles.fixed);
  const std::int64_t parts = split && depth > 0 ? parts_of_k(d, target, tiles, depth, kPerCore) : 1;
  const double area = static_cast<double>(own.rows * own.columns),
               loads = own.load * static_cast<double>(own.rows + own.columns);
  return static_cast<double>(tile_elements) * turns(tiles, parts, target.profile.cores) * (1 + loads / area) *
         (parts > 1 ? kReduction : 1);
}

std::vector<Fit> product_alternatives(const std::map<std::string, std::int64_t>& params,
                                      const MatmulDims& dims, const hal::DeviceInfo& target,
                                      const Tiles& tiles) {
  std::vector<Fit> result;
  for (const std::int64_t per_core : {std::int64_t{0}, kPerCore, 2 * kPerCore}) {
    Fit fit = fit_parts(params, dims, target, tiles, per_core);
    const bool known = std::any_of(result.begin(), result.end(),
                                   [&](const Fit& other) { return other.params == fit.params; });
    if (fit.ok && !known) result.push_back(std::move(fit));
  }
  return result;
}

std::vector<Fit> product_alternatives(const std::map<std::string, std::int64_t>& params,
                                      const Product& product, const hal::DeviceInfo& target,
                                      const Tiles& tiles) {
  if (product.use.may_split()) return product_alternatives(params, product.dims, target, tiles);
  std::vector<Fit> result{fit_product(params, product, target, tiles)};
  std::erase_if(result, [](const Fit& fit) { return !fit.ok; });
  return result;
}

void launch_product(const EncodeArgs& args, const MatmulDims& d, const Launch& tiles) {
  const auto& p = args.choice.params;
  const auto found = p.find("parts");
  const std::int64_t parts = found == p.end() ? 1 : found->second;
  for (const KPart& part : parts > 1 ? std::vector<KPart>{concurrent_parts(args, d, parts)}
                                     : k_parts(args, d, p.at("depth"), args.workspace)) {
    if (part.begin > 0) args.commands.barrier();
    const bool finishes = parts == 1 && part.end == d.k;
    const auto append = [](auto& list, const auto& more) {
      list.insert(list.end(), more.begin(), more.end());
    };
    Launch one = tiles;
    one.groups[2] *= static_cast<std::uint32_t>(parts);
    one.defines.push_back(part.activation);
    one.defines.push_back(define("C_TYPE", finishes ? dtype_code(args.call.outputs[0].dtype) : 0));
    if (parts > 1) one.defines.push_back(define("SPLIT_K", 1));
    one.bindings = part.bindings;
    append(one.bindings, tiles.bindings);
    one.constants = {hal::word(d.m), hal::word(d.n),        hal::word(d.k),
                     part.flags,     hal::word(part.begin), hal::word(part.end)};
    append(one.constants, tiles.constants);
    launch(args, one);
  }
  if (parts == 1) return;
  args.commands.barrier();
  split_k_reduce(args, d, parts);
}

}  // namespace meshloom::backends::simt
