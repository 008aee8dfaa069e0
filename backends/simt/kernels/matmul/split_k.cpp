#include "backends/simt/kernels/matmul/split_k.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace meshloom::backends::simt {
namespace {

using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;

// Workgroups per core, where no time is expected: one waits for memory while the other multiplies.
constexpr std::int64_t kPerCore = 2;
// Steps of K of a part; fewer do not repay a second dispatch.
constexpr std::int64_t kMinSteps = 8;
// Limited, since the second kernel adds the parts one after the other.
constexpr std::int64_t kMaxParts = 64;

std::int64_t elements(const MatmulDims& d) { return d.g * d.m * d.n; }

std::int64_t count(const Tiles& tiles) { return tiles.groups[0] * tiles.groups[1] * tiles.groups[2]; }

double bandwidth(const hal::DeviceInfo& target) {
  constexpr double kReached = 0.8, kUnknown = 5e11;
  const double peak = target.profile.memory_bytes_per_second;
  return kReached * (peak > 0 ? peak : kUnknown);
}

double seconds(const MatmulDims& d, const hal::DeviceInfo& target, const Tiles& tiles, std::int64_t parts) {
  // Of a core with too few workgroups, and of another dispatch.
  constexpr double kAlone = 1.15, kDispatch = 6e-6;
  const std::int64_t cores = std::max<std::int64_t>(target.profile.cores, 1);
  const std::int64_t turns = ceil_div(count(tiles) * parts, cores);
  const std::int64_t depth = ceil_div(ceil_div(d.k, tiles.step), parts) * tiles.step;
  const double of_tile = 2.0 * static_cast<double>(tiles.elements * depth * cores) / tiles.rate;
  const double products = of_tile * static_cast<double>(turns) * (turns < tiles.per_core ? kAlone : 1);
  return parts == 1
             ? products
             : products + kDispatch + 8.0 * static_cast<double>(parts * elements(d)) / bandwidth(target);
}

// The number of parts, up to `most`, with which a GPU is expected to be fastest: the smallest of about equal ones, and 1 where that
// gains little.
std::int64_t fastest_parts(const MatmulDims& d, const hal::DeviceInfo& target, const Tiles& tiles,
                           std::int64_t most) {
  constexpr double kMinGain = 1.1, kAbout = 1.02;
  const double whole = seconds(d, target, tiles, 1);
  double best = whole;
  for (std::int64_t parts = 2; parts <= most; ++parts)
    best = std::min(best, seconds(d, target, tiles, parts));
  if (whole < kMinGain * best) return 1;
  std::int64_t parts = 2;
  while (seconds(d, target, tiles, parts) > kAbout * best) ++parts;
  return parts;
}

// The number of parts that gives each core so many workgroups; 1 where the tiles suffice.
std::int64_t parts_for_cores(const hal::DeviceInfo& target, const Tiles& tiles, std::int64_t most,
                             std::int64_t per_core) {
  return count(tiles) < target.profile.cores ? std::min(per_core * target.profile.cores / count(tiles), most)
                                             : 1;
}

// `times` the default number of parts of K.
std::int64_t parts_of_k(const MatmulDims& d, const hal::DeviceInfo& target, const Tiles& tiles,
                        std::int64_t depth, std::int64_t times = 1) {
  const std::int64_t steps = ceil_div(d.k, tiles.step);
  const bool by_time = !target.is_cpu && tiles.rate > 0;
  std::int64_t room = std::min({steps / kMinSteps, target.limits.max_groups[2] / tiles.groups[2],
                                std::numeric_limits<std::int32_t>::max() / elements(d)});
  // Writing and reading all sums must not cost more than reading A and B.
  if (!by_time) room = std::min(room, d.k * (d.m + d.n) / (d.m * d.n));
  const std::int64_t most = std::min(room, kMaxParts);
  const std::int64_t wanted = by_time ? times * fastest_parts(d, target, tiles, most)
                                      : parts_for_cores(target, tiles, most, kPerCore * times);
  if (wanted < 2) return 1;
  const std::int64_t parts = std::min(std::max(wanted, ceil_div(d.k, depth)), room);
  if (parts < 2) return 1;
  const std::int64_t each = ceil_div(steps, parts);
  return each * tiles.step <= depth ? ceil_div(steps, each) : 1;
}

// `times` the default number of concurrent parts; 0: a single one.
Fit fit_parts(std::map<std::string, std::int64_t> params, const MatmulDims& d, const hal::DeviceInfo& target,
              const Tiles& tiles, std::int64_t times) {
  if (std::string reason = unsupported_groups(target, tiles.groups); !reason.empty())
    return Fit::no(std::move(reason));
  const std::int64_t depth = k_depth(target, d.k, tiles.step, tiles.per_step, tiles.fixed);
  if (depth == 0)
    return Fit::no(unsupported_iterations(target, static_cast<double>(tiles.per_step + tiles.fixed)));
  const std::int64_t parts = times > 0 ? parts_of_k(d, target, tiles, depth, times) : 1;
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

double tile_rate(const hal::DeviceInfo& target, hal::DType dtype, const std::vector<LoadedBlock>& blocks) {
  constexpr double kReached = 0.8, kUnknown = 1e13;
  const double peak = hal::peak_flops(target.profile, dtype);
  double work = 1;  // that one product costs
  for (const LoadedBlock& block : blocks)
    work += block.load * static_cast<double>(block.rows + block.columns) /
            static_cast<double>(block.rows * block.columns);
  return kReached * (peak > 0 ? peak : kUnknown) / work;
}

double product_seconds(const MatmulDims& d, const hal::DeviceInfo& target, const Tiles& tiles, bool split) {
  const std::int64_t depth = k_depth(target, d.k, tiles.step, tiles.per_step, tiles.fixed);
  return seconds(d, target, tiles, split && depth > 0 ? parts_of_k(d, target, tiles, depth) : 1);
}

Fit fit_product(const std::map<std::string, std::int64_t>& params, const MatmulDims& dims,
                const hal::DeviceInfo& target, const Tiles& tiles) {
  return fit_parts(params, dims, target, tiles, 1);
}

Fit fit_product(const std::map<std::string, std::int64_t>& params, const Product& product,
                const hal::DeviceInfo& target, const Tiles& tiles) {
  return fit_parts(params, product.dims, target, tiles, product.use.may_split() ? 1 : 0);
}

std::vector<Fit> product_alternatives(const std::map<std::string, std::int64_t>& params,
                                      const MatmulDims& dims, const hal::DeviceInfo& target,
                                      const Tiles& tiles) {
  std::vector<Fit> result;
  for (const std::int64_t times : {0, 1, 2}) {
    Fit fit = fit_parts(params, dims, target, tiles, times);
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
