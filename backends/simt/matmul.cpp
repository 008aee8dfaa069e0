#include "backends/simt/matmul.h"

#include "backends/simt/variants.h"

namespace meshloom::backends::simt {

std::vector<hal::Binding> matmul_bindings(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims) {
  const auto input = [&](int index) { return reading(args.inputs[static_cast<std::size_t>(index)]); };
  return {input(0), input(1), input(dims.bias < 0 ? 1 : dims.bias),
          input(dims.residual < 0 ? 1 : dims.residual), writing(args.outputs[0])};
}

hal::Word matmul_flags(const kernels::MatmulDims& dims, std::int64_t more) {
  return hal::word(std::int64_t{(dims.bias >= 0 ? 1 : 0) + (dims.residual >= 0 ? 2 : 0) +
                                (dims.trans_a ? 4 : 0) + (dims.trans_b ? 8 : 0) + more});
}

hal::Define matmul_activation(const kernels::MatmulDims& dims) {
  return define("ACTIVATION", static_cast<std::int64_t>(dims.activation));
}

std::string matmul_unfit(const kernels::CallView& call, const hal::DeviceInfo& target,
                         std::array<std::int64_t, 3> groups) {
  for (std::size_t d = 0; d < 3; ++d)
    if (groups[d] > target.limits.max_groups[d])
      return "needs " + std::to_string(groups[d]) + " workgroups in dimension " + std::to_string(d) +
             ", the driver takes " + std::to_string(target.limits.max_groups[d]);
  return unfit(call);
}

std::array<std::uint32_t, 3> matmul_groups(std::array<std::int64_t, 3> groups) {
  return {static_cast<std::uint32_t>(groups[0]), static_cast<std::uint32_t>(groups[1]),
          static_cast<std::uint32_t>(groups[2])};
}

void add_simt_matmul_variants(kernels::Catalog& catalog, const std::string& backend) {
  for (auto* add : {add_matmul_naive, add_matmul_host, add_matmul_gpu_tile, add_matmul_tpu_stationary,
                    add_matmul_trainium_psum})
    add(catalog, backend);
}

}  // namespace meshloom::backends::simt
