// Matmul for drivers that run on the host's cores: few, fat invocations, no barriers.
#include <algorithm>

#include "backends/simt/matmul.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;

// --- OpenCL: vectors of 16 ---
constexpr std::int64_t kVecDepth = 256;  // 16 KiB of packed B: half of a first cache

std::int64_t vec_height(const hal::DeviceInfo& target) { return target.profile.lanes >= 16 ? 12 : 6; }

Fit fit_vec16(const CallView& call, const hal::DeviceInfo& target) {
  if (!target.is_cpu) return Fit::no("is for OpenCL on a CPU; this device has cores of its own");
  const MatmulDims d = kernels::matmul_dims(call);
  const std::int64_t height = vec_height(target), panels = ceil_div(d.n, 16);
  // As many rows per invocation as leave every core a few invocations.
  const std::int64_t wanted = 4 * std::max(target.profile.cores, 1);
  std::int64_t rows = round_up(std::min<std::int64_t>(d.m, 120), height);
  while (rows > 2 * height && d.g * panels * ceil_div(d.m, rows) < wanted)
    rows = round_up(rows / 2, height);
  const std::string reason = matmul_unfit(call, target, {panels, ceil_div(d.m, rows), d.g});
  if (!reason.empty()) return Fit::no(reason);
  return Fit::yes({{"height", height}, {"rows", rows}, {"depth", kVecDepth}});
}

void encode_vec16(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  const auto& p = args.choice.params;
  const std::int64_t rows = p.at("rows");
  launch(args, {.kernel = "matmul_vec16",
                .defines = {matmul_activation(d), define("TM", p.at("height")), define("KC", p.at("depth")),
                            define("MC", 120), define("TRANS_A", d.trans_a), define("TRANS_B", d.trans_b)},
                .width = 1,
                .groups = {static_cast<std::uint32_t>(ceil_div(d.n, 16)),
                           static_cast<std::uint32_t>(ceil_div(d.m, rows)), static_cast<std::uint32_t>(d.g)},
                .bindings = matmul_bindings(args, d),
                .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), matmul_flags(d),
                              hal::word(rows)}});
}

// --- Vulkan: one subgroup per workgroup ---
Fit fit_lane_block(const CallView& call, const hal::DeviceInfo& target) {
  const MatmulDims d = kernels::matmul_dims(call);
  static const std::int64_t tm = getenv("TM") ? atoi(getenv("TM")) : 8, tn = getenv("TN") ? atoi(getenv("TN")) : 4;
  const std::string reason = matmul_unfit(call, target, {ceil_div(d.n, tn * 8), ceil_div(d.m, tm), d.g});
  if (!reason.empty()) return Fit::no(reason);
  return Fit::yes({{"tm", tm}, {"tn", tn}});
}

void encode_lane_block(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  const auto& p = args.choice.params;
  launch(args, {.kernel = "matmul_lane_block",
                .defines = {matmul_activation(d), define("TM", p.at("tm")), define("TN", p.at("tn"))},
                .width = 8,
                .groups = {static_cast<std::uint32_t>(ceil_div(d.n, 8*p.at("tn"))),
                           static_cast<std::uint32_t>(ceil_div(d.m, p.at("tm"))), static_cast<std::uint32_t>(d.g)},
                .bindings = matmul_bindings(args, d),
                .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), matmul_flags(d)}});
}

}  // namespace

void add_matmul_host(kernels::Catalog& catalog, const std::string& backend) {
  if (backend == "opencl")
    catalog.add(kernels::Variant{
        .op = "matmul",
        .backend = backend,
        .name = "vec16",
        .kinds = {hal::ProfileKind::host},
        .rank = 10,
        .about = "16 packed columns of B per invocation against register blocks of A: one core's vector unit",
        .fit = fit_vec16,
        .encode = encode_vec16});
    catalog.add(kernels::Variant{
        .op = "matmul",
        .backend = backend,
        .name = "lane_block",
        .kinds = {hal::ProfileKind::host},
        .rank = 9,
        .about = "a block of C in the registers of one vector's lanes, no barriers",
        .fit = fit_lane_block,
        .encode = encode_lane_block});
}

}  // namespace meshloom::backends::simt
