// Exact products of eight-bit integers on NVIDIA's tensor cores, by PTX within OpenCL C.
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/mma.h"
#include "backends/opencl/kernels/int8_matmul/int8_products.h"
#include "backends/opencl/kernels/matmul/mma_tiles.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::string unsupported(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_mma(target, hal::DType::i8); !reason.empty()) return reason;
  return simt::unsupported_size(call);
}

bool allows_async(const CallView& call) { return product_of(call).k % 16 == 0; }

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported(call, target); !reason.empty()) return Fit::no(std::move(reason));
  if (const auto best =
          best_mma_tile(target, hal::DType::i8, allows_async(call), {product_of(call), {.unsplit = true}}))
    return fit_int8(call, target, best->tile, {{"async", best->async}});
  return Fit::no(simt::unsupported_tiles(target, mma_shape(hal::DType::i8)));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported(call, target).empty()) return result;
  for (const MmaTile& each : mma_tiles(target, hal::DType::i8, allows_async(call), {0, 3}))
    if (Fit fit = fit_int8(call, target, each.tile, {{"async", each.async}}); fit.ok)
      result.push_back(std::move(fit));
  return result;
}

void encode(const EncodeArgs& args) {
  launch_int8(args, "int8_matmul_ptx_mma", stage_defines(args.choice.params));
}

}  // namespace

kernels::Variant int8_matmul_ptx_mma() {
  return {.name = "ptx_mma",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "eight-bit integers on NVIDIA's tensor cores, by PTX that its OpenCL compiler takes: "
              "a warp multiplies whole matrices",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
