// Matmul of 16-bit floats on the matrix units of Intel's GPUs.
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/dpas.h"
#include "backends/opencl/kernels/matmul/dpas_tiles.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using simt::MatrixTile;
using simt::Product;

std::string unsupported(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_dpas(target, call.inputs[0].dtype); !reason.empty()) return reason;
  return simt::unsupported_size(call);
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported(call, target); !reason.empty()) return Fit::no(std::move(reason));
  const Product product = simt::product_of(call);
  const hal::MatrixShape shape = *find_dpas(target, call.inputs[0].dtype);
  if (const auto tile = simt::best_tile(dpas_tiles(target, shape), target, product))
    return simt::fit_product(tile->params(), product, target, simt::product_tiles(*tile, product, target));
  return Fit::no(simt::unsupported_tiles(target, shape));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported(call, target).empty()) return result;
  const Product product = simt::product_of(call);
  for (const MatrixTile& tile : dpas_tiles(target, *find_dpas(target, call.inputs[0].dtype)))
    for (Fit& fit : simt::product_alternatives(tile.params(), product, target,
                                               simt::product_tiles(tile, product, target)))
      result.push_back(std::move(fit));
  return result;
}

void encode(const EncodeArgs& args) {
  const hal::DType in = args.call.inputs[0].dtype;
  const MatrixTile tile = MatrixTile::of(args.choice.params, in, hal::DType::f32);
  simt::launch_product(
      args, simt::product_of(args.call), tile,
      {.kernel = "matmul_dpas",
       .defines = {simt::define("AB_TYPE", simt::dtype_code(in)), simt::define("MOST_REGISTERS", 1)}});
}

}  // namespace

kernels::Variant matmul_dpas() {
  return {.name = "dpas",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on the matrix units of Intel's GPUs, by "
              "cl_intel_subgroup_matrix_multiply_accumulate: "
              "a subgroup multiplies whole matrices",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .low_precision = true,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
