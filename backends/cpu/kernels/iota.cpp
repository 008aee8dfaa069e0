// 0, 1, 2, ...
#include <algorithm>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"

namespace meshloom::backends::cpu {
namespace {

constexpr std::int64_t kBlock = 8192;  // elements per work item

void run_iota(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const std::int64_t n = ConstantReader(args).integer();
  auto* out = args.at<std::int32_t>(0);
  for (std::int64_t i = begin * kBlock; i < std::min(n, end * kBlock); ++i)
    out[i] = static_cast<std::int32_t>(i);
}

void encode(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.outputs[0].elements();
  record(args, "iota", hal::ceil_div(n, kBlock), {writes(args.outputs[0])}, Constants().integer(n));
}

}  // namespace

Ops iota_ops() {
  return {{{"iota", run_iota}}, {{"iota", {simd_variant("blocks in parallel", fit_any, encode)}}}};
}

}  // namespace meshloom::backends::cpu
