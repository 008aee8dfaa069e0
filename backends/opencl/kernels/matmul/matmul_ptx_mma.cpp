// Matmul of 16-bit floats on NVIDIA's tensor cores, by PTX within OpenCL C.
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/mma.h"
#include "backends/opencl/kernels/matmul/mma_tiles.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;
using simt::MatrixTile;
using simt::Product;

std::string unsupported(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_mma(target, call.inputs[0].dtype); !reason.empty()) return reason;
  return simt::unsupported_size(call);
}

bool allows_async(const MatmulDims& d) { return simt::has_wide_a(d) && simt::has_wide_b(d); }

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported(call, target); !reason.empty()) return Fit::no(std::move(reason));
  const Product product = simt::product_of(call);
  const hal::DType in = call.inputs[0].dtype;
  if (const auto best = best_mma_tile(target, in, allows_async(product.dims), product))
    return simt::fit_product(best->params(), product, target,
                             simt::product_tiles(best->tile, product, target));
  return Fit::no(simt::unsupported_tiles(target, mma_shape(in)));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported(call, target).empty()) return result;
  const Product product = simt::product_of(call);
  for (const MmaTile& each : mma_tiles(target, call.inputs[0].dtype, allows_async(product.dims), {0, 2, 3}))
    for (Fit& fit : simt::product_alternatives(each.params(), product, target,
                                               simt::product_tiles(each.tile, product, target)))
      result.push_back(std::move(fit));
  return result;
}

void encode(const EncodeArgs& args) {
  const hal::DType in = args.call.inputs[0].dtype;
  const MatrixTile tile = MatrixTile::of(args.choice.params, in, hal::DType::f32);
  std::vector<hal::Define> defines = stage_defines(args.choice.params);
  defines.insert(defines.begin(), simt::define("AB_TYPE", simt::dtype_code(in)));
  simt::launch_product(args, simt::product_of(args.call), tile,
                       {.kernel = "matmul_ptx_mma", .defines = std::move(defines)});
}

}  // namespace

kernels::Variant matmul_ptx_mma() {
  return {.name = "ptx_mma",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on NVIDIA's tensor cores, by PTX that its OpenCL compiler takes: "
              "a warp multiplies whole matrices",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .low_precision = true,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
