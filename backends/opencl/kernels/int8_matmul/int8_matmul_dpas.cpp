// Exact products of eight-bit integers on the matrix units of Intel's GPUs.
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/dpas.h"
#include "backends/opencl/kernels/int8_matmul/int8_products.h"
#include "backends/opencl/kernels/matmul/dpas_tiles.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::string unsupported(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_dpas(target, hal::DType::i8); !reason.empty()) return reason;
  return simt::unsupported_size(call);
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported(call, target); !reason.empty()) return Fit::no(std::move(reason));
  const hal::MatrixShape shape = *find_dpas(target, hal::DType::i8);
  if (const auto tile = simt::best_tile(dpas_tiles(target, shape), target, product_of(call), false))
    return fit_int8(call, target, *tile);
  return Fit::no(simt::unsupported_tiles(target, shape));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported(call, target).empty()) return result;
  for (const simt::MatrixTile& tile : dpas_tiles(target, *find_dpas(target, hal::DType::i8)))
    if (Fit fit = fit_int8(call, target, tile); fit.ok) result.push_back(std::move(fit));
  return result;
}

void encode(const EncodeArgs& args) {
  launch_int8(args, "int8_matmul_dpas", {simt::define("MOST_REGISTERS", 1)});
}

}  // namespace

kernels::Variant int8_matmul_dpas() {
  return {.name = "dpas",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "eight-bit integers on the matrix units of Intel's GPUs, by "
              "cl_intel_subgroup_matrix_multiply_accumulate: a subgroup multiplies whole matrices",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
