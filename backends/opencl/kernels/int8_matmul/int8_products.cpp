#include "backends/opencl/kernels/int8_matmul/int8_products.h"

#include <utility>

namespace meshloom::backends::opencl {

using kernels::Fit;
using kernels::Int8MatmulDims;
using kernels::MatmulDims;
using simt::MatrixTile;

MatmulDims product_of(const kernels::CallView& call) {
  const Int8MatmulDims d = kernels::int8_matmul_dims(call);
  return {.g = 1, .m = d.m, .n = d.n, .k = d.k, .bias = -1, .residual = -1};
}

Fit fit_int8(const kernels::CallView& call, const hal::DeviceInfo& target, const MatrixTile& tile,
             const std::map<std::string, std::int64_t>& more) {
  const MatmulDims d = product_of(call);
  if (std::string reason = simt::unsupported_groups(target, tile.groups(d.m, d.n, 1)); !reason.empty())
    return Fit::no(std::move(reason));
  std::map<std::string, std::int64_t> params = tile.params();
  params.insert(more.begin(), more.end());
  return Fit::yes(std::move(params));
}

void launch_int8(const kernels::EncodeArgs& args, std::string kernel, std::vector<hal::Define> more) {
  const Int8MatmulDims d = kernels::int8_matmul_dims(args.call);
  const MatrixTile tile = MatrixTile::of(args.choice.params, hal::DType::i8, hal::DType::i32);
  std::vector<hal::Define> defines = tile.defines();
  for (const hal::Define& item :
       {simt::define("LOAD_NUMBERS", simt::int8_load_numbers(d.k)),
        simt::define("WHOLE_STEPS", d.k % tile.bk == 0), simt::define("WIDE_C", d.n % 8 == 0)})
    defines.push_back(item);
  defines.insert(defines.end(), more.begin(), more.end());
  simt::launch(args, {.kernel = std::move(kernel),
                      .defines = std::move(defines),
                      .width = static_cast<std::uint32_t>(tile.workgroup()),
                      .groups = simt::matmul_groups(tile.groups(d.m, d.n, 1)),
                      .bindings = simt::int8_matmul_bindings(args),
                      .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k),
                                    hal::word(std::int64_t{d.bias >= 0})}});
}

}  // namespace meshloom::backends::opencl
