// Matmul with few rows, as in decoding token by token: the time is that of reading B.
#include <algorithm>
#include <array>
#include <utility>

#include "backends/simt/host/quirks.h"
#include "backends/simt/kernels/matmul/split_k.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;

constexpr std::int64_t kMaxRows = 16;

// The parameters of matmul_few_rows.simt.
struct Tile {
  std::int64_t width;    // invocations of a workgroup
  std::int64_t across;   // of them, neighbours along a row of B; 1 where they are neighbours along K
  std::int64_t columns;  // loads of an invocation per row of B
  std::int64_t wide;     // elements per load of B
  std::int64_t run;      // rows of B at a time; 1 along K
  std::int64_t visit;    // products added to a sum at a time, along K or with shuffle
  bool shuffle;          // lanes load neighbours in a row of A and exchange them by shuffles

  bool along_k() const { return across == 1; }
  std::int64_t parts() const { return width / across; }
  std::int64_t strip() const { return across * columns * (along_k() ? 1 : wide); }
  std::int64_t row_bytes() const { return 4 * strip() * (parts() | 1); }
  // Rows whose sums are in workgroup memory at once.
  std::int64_t round(std::int64_t rows) const {
    constexpr std::int64_t kSharedBytes = 16 << 10;
    return std::clamp<std::int64_t>(kSharedBytes / row_bytes(), 1, rows);
  }
  // Steps of K that all invocations together take in one loop iteration.
  std::int64_t step() const { return along_k() ? width * wide * visit : parts() * run; }
  // Loop iterations of one invocation besides those along K.
  std::int64_t fixed_iterations(std::int64_t rows) const {
    return run + visit + rows * (ceil_div(strip(), width) + 1) * (parts() + 1);
  }
  std::array<std::int64_t, 3> groups(const MatmulDims& d) const { return {ceil_div(d.n, strip()), 1, d.g}; }
};

// Enough invocations to hide the latency of memory, in workgroups for every core: strips get narrower and workgroups
// wider until there are so many.
constexpr std::int64_t kGroupsPerCore = 4, kInvocationsPerCore = 1024, kMaxInvocations = 512;

constexpr std::int64_t kLineBytes = 128;  // of a GPU's cache

bool too_few_groups(const MatmulDims& d, const Tile& tile, const hal::DeviceInfo& target) {
  return d.g * tile.groups(d)[0] < kGroupsPerCore * std::max(target.profile.cores, 1);
}

std::int64_t max_width(const hal::DeviceInfo& target) {
  return std::min(kMaxInvocations, max_invocations(target));
}

Tile gpu_tile(const MatmulDims& d, hal::DType dtype, const hal::DeviceInfo& target) {
  const std::int64_t cores = std::max(target.profile.cores, 1);
  const std::int64_t limit = max_width(target);
  Tile tile{};
  const auto few_groups = [&] { return too_few_groups(d, tile, target); };
  const auto few_invocations = [&] {
    return d.g * tile.groups(d)[0] * tile.width < kInvocationsPerCore * cores;
  };
  if (d.trans_b) {
    // As many columns as keep the sums in registers; each loaded element of A is used for all of them.
    tile = {std::min<std::int64_t>(64, limit), 1, d.m <= 4 ? 8 : 4, load_width(dtype, d.k), 1, 1, false};
    while (tile.columns > 1 && few_groups()) tile.columns /= 2;
    while (tile.width * 2 <= limit && d.k >= 4 * tile.step() && few_invocations()) tile.width *= 2;
    return tile;
  }
  const std::int64_t across = std::min<std::int64_t>(32, limit), wide = load_width(dtype, d.n);
  tile = {across, across, 1, wide, d.m > 8 ? 4 : 8, 1, false};
  // As long as neighbours still read whole lines of the cache.
  const std::int64_t least = kLineBytes / (wide * static_cast<std::int64_t>(hal::size_of(dtype)));
  while (tile.across > least && few_groups()) tile.across /= 2;
  while (tile.width * 2 <= limit && d.k >= 4 * tile.step() && few_invocations()) tile.width *= 2;
  return tile;
}

// For Vulkan on a CPU: workgroups larger than a subgroup and loads are expensive, shuffles are not. Strips are wide, since
// long pieces of a row of B are read faster; the sums are then in memory, and are read and written as rarely as possible.
Tile lane_tile(const MatmulDims& d, hal::DType dtype, const hal::DeviceInfo& target) {
  const std::int64_t lanes = std::max(target.limits.subgroup, 2);
  // A load of four bytes is one gather, a load of sixteen bytes is four.
  const std::int64_t wide = dtype == hal::DType::f32 ? 1 : load_width(dtype, d.trans_b ? d.k : d.n);
  Tile tile{};
  if (d.trans_b)
    tile = {lanes, 1, d.m == 1 || wide > 1 ? 8 : 16, wide, 1, wide > 1 ? 1 : 4, false};
  else
    tile = {lanes, lanes, wide > 1 ? 1 : d.m <= 4 ? 32 : 16, wide, lanes, 2, target.has("subgroup-shuffle")};
  while (tile.columns > 4 && too_few_groups(d, tile, target)) tile.columns /= 2;
  return tile;
}

std::int64_t a_wide(const MatmulDims& d, hal::DType dtype, const Tile& tile) {
  if (d.trans_a || tile.shuffle) return 1;
  const std::int64_t wide = load_width(dtype, d.k);
  return (tile.along_k() ? tile.wide : tile.run) % wide == 0 ? wide : 1;
}

Fit fit_tile(const MatmulDims& d, const hal::DeviceInfo& target, const Tile& tile) {
  if (std::string reason = unsupported_groups(target, tile.groups(d)); !reason.empty())
    return Fit::no(reason);
  const std::int64_t local = workgroup_bytes(target);
  if (const std::int64_t bytes = tile.round(d.m) * tile.row_bytes(); bytes > local)
    return Fit::no("needs " + std::to_string(bytes) + " bytes of workgroup memory; the device has " +
                   std::to_string(local));
  const std::int64_t fixed = tile.fixed_iterations(d.m), depth = k_depth(target, d.k, tile.step(), 1, fixed);
  if (depth == 0) return Fit::no(unsupported_iterations(target, static_cast<double>(fixed + 1)));
  return Fit::yes({{"width", tile.width},
                   {"across", tile.across},
                   {"columns", tile.columns},
                   {"wide", tile.wide},
                   {"run", tile.run},
                   {"visit", tile.visit},
                   {"spread", tile.shuffle ? 1 : 0},
                   {"depth", depth}},
                  sums_bytes(d, depth));
}

// The parameters of matmul_few_rows_vec.cl, the kernel for OpenCL on a CPU.
struct Strip {
  std::int64_t vector, columns, block, run, vectors, strip, held;

  std::array<std::int64_t, 3> groups(const MatmulDims& d) const { return {ceil_div(d.n, strip), 1, d.g}; }
};

Strip vector_strip(const MatmulDims& d, const hal::DeviceInfo& target) {
  const bool wide = target.profile.lanes >= 16;
  Strip s{wide ? 16 : 8, 1, 1, 8, 1, 32, 0};
  // From this many rows on, each broadcast of A is multiplied by two vectors of B; the number of loaded factors of B stays.
  constexpr std::int64_t kTwoVectorRows = 9;
  if (d.m >= kTwoVectorRows) s.vectors = 2, s.run = wide ? 8 : 4;
  // As many sums as 32 or 16 registers hold beside the factors.
  s.block = ceil_div(d.m, ceil_div(d.m, wide ? 8 : 4));
  s.columns = s.block == 1 ? 6 : s.block == 2 ? 4 : 3;
  constexpr std::int64_t kHeldFloats = 4096;
  s.held = std::min(round_up(d.k, s.vector), std::max<std::int64_t>(512, round_up(kHeldFloats / d.m, 16)));
  if (!d.trans_b) {
    s.strip = std::clamp<std::int64_t>(kHeldFloats / d.m / 16 * 16, 256, 1024);
    s.held = std::min<std::int64_t>(s.held, 512);
  }
  const std::int64_t wanted = kGroupsPerCore * std::max(target.profile.cores, 1);
  while (s.strip > 32 && d.g * s.groups(d)[0] < wanted) s.strip = round_up(s.strip / 2, 16);
  return s;
}

Fit fit_strip(const MatmulDims& d, const hal::DeviceInfo& target, const Strip& s) {
  if (std::string reason = unsupported_groups(target, s.groups(d)); !reason.empty()) return Fit::no(reason);
  return Fit::yes({{"vector", s.vector},
                   {"columns", s.columns},
                   {"block", s.block},
                   {"run", s.run},
                   {"vectors", s.vectors},
                   {"strip", s.strip},
                   {"held", s.held},
                   {"depth", d.k}});
}

std::string unsupported_call(const CallView& call, const hal::DeviceInfo& target) {
  const MatmulDims d = kernels::matmul_dims(call);
  if (d.m > kMaxRows)
    return "takes at most " + std::to_string(kMaxRows) + " rows, not " + std::to_string(d.m);
  return kernels::any_low_precision(call) ? unsupported_f16(call, target) : unsupported_dtype(call);
}

// True where matmul_few_rows_vec.cl is used.
bool in_vectors(const hal::DeviceInfo& target) {
  return target.is_cpu && target.backend == "opencl" && !quirks_of(target.name).splits_vectors;
}

// The reason why another variant is faster, or "". On the host measured against vec16 and lane_block on two cores; 16-bit
// floats, which those convert first, are always faster here.
std::string slower_than_others(const CallView& call, const MatmulDims& d, const hal::DeviceInfo& target) {
  const hal::DType dtype = call.inputs[0].dtype;
  if (target.profile.kind != hal::ProfileKind::host) {
    // With so many rows the arithmetic takes longer than reading B, while a matrix unit would be bound by memory. An
    // estimate, not measured: at most half of the peak rate, since factors are loaded and widened too.
    constexpr double kFractionOfPeak = 0.5;
    const double flops = kFractionOfPeak * hal::peak_flops(target.profile, hal::DType::f32),
                 bytes = target.profile.memory_bytes_per_second;
    const bool unit = std::any_of(target.limits.matrix_shapes.begin(), target.limits.matrix_shapes.end(),
                                  [&](const hal::MatrixShape& shape) { return shape.in == dtype; });
    if (unit && flops > 0 && bytes > 0 &&
        2.0 * static_cast<double>(d.m) / flops > static_cast<double>(hal::size_of(dtype)) / bytes)
      return "computing " + std::to_string(d.m) +
             " rows would take longer than reading B, and there is a matrix unit";
    return {};
  }
  if (dtype != hal::DType::f32) return {};
  if (in_vectors(target)) {
    // With a smaller B, which is in cache, other costs dominate; with many rows those are lower with vec16's larger
    // register blocks.
    constexpr std::int64_t kElementsPerRow = 16384, kElementsPerRowOfMany = 131072, kManyRows = 9;
    const std::int64_t min_elements =
        d.m * (d.m >= kManyRows && !d.trans_b ? kElementsPerRowOfMany : kElementsPerRow);
    if (d.g * d.n * d.k < min_elements)
      return "other variants are faster for " + std::to_string(d.m) + " rows and fewer than " +
             std::to_string(min_elements) + " elements of B; here are " + std::to_string(d.g * d.n * d.k);
    return {};
  }
  // Adding the invocations' sums through memory costs time per row, more where the invocations are neighbours along K.
  constexpr std::int64_t kDepthPerRow = 32, kDepthPerRowAlongK = 128;
  const std::int64_t min_depth = (d.trans_b ? kDepthPerRowAlongK : kDepthPerRow) * d.m;
  if (d.k < min_depth)
    return "other variants are faster for " + std::to_string(d.m) + " rows and K below " +
           std::to_string(min_depth) + "; here K is " + std::to_string(d.k);
  return {};
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_call(call, target); !reason.empty()) return Fit::no(reason);
  const MatmulDims d = kernels::matmul_dims(call);
  if (std::string reason = slower_than_others(call, d, target); !reason.empty()) return Fit::no(reason);
  if (in_vectors(target)) return fit_strip(d, target, vector_strip(d, target));
  const hal::DType dtype = call.inputs[0].dtype;
  return fit_tile(d, target, target.is_cpu ? lane_tile(d, dtype, target) : gpu_tile(d, dtype, target));
}

// Includes GPU tiles on CPU drivers, so that tests run them there, but not the largest ones, which take seconds to compile.
std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported_call(call, target).empty()) return result;
  const MatmulDims d = kernels::matmul_dims(call);
  const hal::DType dtype = call.inputs[0].dtype;
  const auto add = [&](Fit fit) {
    if (fit.ok) result.push_back(std::move(fit));
  };
  const std::int64_t limit = max_width(target), wide = load_width(dtype, d.trans_b ? d.k : d.n);
  for (const std::int64_t width : {32, 64, 128, 256})
    if (width <= limit)
      for (const std::int64_t columns : {1, 2, 4, 8}) {
        if (target.is_cpu && d.m * columns * wide > 64) continue;
        if (d.trans_b)
          add(fit_tile(d, target, {width, 1, columns, wide, 1, 1, false}));
        else if (columns == 1 || columns == wide)
          for (const std::int64_t across : {32, 8})
            add(fit_tile(
                d, target,
                {width, std::min<std::int64_t>(across, width), 1, columns, d.m > 8 ? 4 : 8, 1, false}));
      }
  if (in_vectors(target)) {
    Strip s = vector_strip(d, target);
    for (const std::int64_t strip : {32, 64, 256, 1024})
      for (const std::int64_t held : {128, 512}) {
        s.strip = strip;
        s.held = held;
        add(fit_strip(d, target, s));
      }
  } else if (target.is_cpu) {
    Tile tile = lane_tile(d, dtype, target);
    for (const std::int64_t columns : {1, 2, 4, 8, 16}) {
      if (d.m * columns * (d.trans_b ? 1 : tile.wide) > 256) continue;
      tile.columns = columns;
      add(fit_tile(d, target, tile));
    }
  }
  return result;
}

void encode_tile(const EncodeArgs& args, const MatmulDims& d) {
  const auto& p = args.choice.params;
  const Tile tile{p.at("width"), p.at("across"), p.at("columns"),    p.at("wide"),
                  p.at("run"),   p.at("visit"),  p.at("spread") != 0};
  const hal::DType dtype = args.call.inputs[0].dtype;
  launch_product(args, d,
                 {.kernel = "matmul_few_rows",
                  .defines = {define("AB_TYPE", dtype_code(dtype)), define("ROWS", d.m),
                              define("TRANS_A", d.trans_a), define("TRANS_B", d.trans_b),
                              define("ACROSS", tile.across), define("COLUMNS", tile.columns),
                              define("WIDE", tile.wide), define("A_WIDE", a_wide(d, dtype, tile)),
                              define("RUN", tile.run), define("VISIT", tile.visit),
                              define("SHUFFLE", tile.shuffle), define("ROUND", tile.round(d.m))},
                  .width = static_cast<std::uint32_t>(tile.width),
                  .groups = matmul_groups(tile.groups(d))});
}

void encode_strip(const EncodeArgs& args, const MatmulDims& d) {
  const auto& p = args.choice.params;
  const Strip s{p.at("vector"),  p.at("columns"), p.at("block"), p.at("run"),
                p.at("vectors"), p.at("strip"),   p.at("held")};
  launch_product(
      args, d,
      {.kernel = "matmul_few_rows_vec",
       .defines = {define("AB_TYPE", dtype_code(args.call.inputs[0].dtype)), define("ROWS", d.m),
                   define("TRANS_A", d.trans_a), define("TRANS_B", d.trans_b), define("VW", s.vector),
                   define("COLUMNS", s.columns), define("BLOCK", s.block), define("RUN", s.run),
                   define("VECTORS", s.vectors), define("STRIP", s.strip), define("KC", s.held)},
       .width = 1,
       .groups = matmul_groups(s.groups(d))});
}

void encode(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  args.choice.params.contains("vector") ? encode_strip(args, d) : encode_tile(args, d);
}

}  // namespace

kernels::Variant matmul_few_rows() {
  return {.name = "few_rows",
          .kinds = {hal::ProfileKind::gpu, hal::ProfileKind::host},
          .about =
              "few rows: all sums stay in registers, and B is read once at the speed of "
              "memory",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .low_precision = true};
}

}  // namespace meshloom::backends::simt
