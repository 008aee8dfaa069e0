#include "backends/cpu/gemm/matmul_work.h"

#include <algorithm>
#include <limits>

#include "backends/cpu/kernels/encode.h"

namespace meshloom::backends::cpu {

void record(const kernels::EncodeArgs& args, const std::string& kernel, std::array<std::uint32_t, 3> items,
            const std::vector<hal::Word>& constants) {
  std::vector<hal::Binding> bindings;
  for (const hal::Binding& input : args.inputs) bindings.push_back(hal::reads(input));
  for (const hal::Binding& output : args.outputs) bindings.push_back(hal::writes(output));
  if (args.workspace.buffer != nullptr) bindings.push_back(hal::reads_and_writes(args.workspace));
  record_dispatch(args, kernel, items, bindings, constants);
}

MatmulWork matmul_work(const kernels::CallView& call) {
  const kernels::MatmulDims dims = kernels::matmul_dims(call);
  MatmulWork work{};
  work.g = static_cast<std::int32_t>(dims.g);
  work.m = static_cast<std::int32_t>(dims.m);
  work.n = static_cast<std::int32_t>(dims.n);
  work.k = static_cast<std::int32_t>(dims.k);
  work.trans_a = dims.trans_a;
  work.trans_b = dims.trans_b;
  work.has_bias = dims.bias >= 0;
  work.has_residual = dims.residual >= 0;
  work.activation = dims.activation;
  work.dtype = call.inputs[0].dtype;
  work.result = call.outputs[0].dtype;
  return work;
}

void set_tiles(const kernels::Choice& choice, MatmulWork& work) {
  const auto take = [&](const char* name, std::int32_t& into) {
    const auto found = choice.params.find(name);
    if (found != choice.params.end()) into = static_cast<std::int32_t>(found->second);
  };
  take("tile_m", work.tile_m);
  take("tile_n", work.tile_n);
  take("tile_k", work.tile_k);
  take("panel", work.panel);
  take("swapped", work.swapped);
}

MatmulWork matmul_work(const kernels::EncodeArgs& args) {
  MatmulWork work = matmul_work(args.call);
  set_tiles(args.choice, work);
  return work;
}

MatmulOperands matmul_operands(const MatmulWork& work, const KernelArgs& args, std::int64_t batch) {
  const std::int64_t m = work.m, n = work.n, k = work.k;
  const std::size_t bias = 2, residual = bias + (work.has_bias ? 1 : 0),
                    scales = residual + (work.has_residual ? 1 : 0), c = scales + work.nf4;
  MatmulOperands o{};
  o.a = args.at(0) + batch * m * k;
  o.b = args.at(1) + batch * k * n;
  o.bias = work.has_bias ? args.at(bias) : nullptr;
  o.residual = work.has_residual ? args.at(residual) + batch * m * n : nullptr;
  o.scales = work.nf4 ? args.at(scales) : nullptr;
  o.steps = work.nf4 == 2 ? args.at(scales + 1) : nullptr;
  o.c = args.at(c) + batch * m * n;
  o.a_row = work.trans_a ? 1 : k;
  o.a_col = work.trans_a ? m : 1;
  o.b_row = work.trans_b ? 1 : n;
  o.b_col = work.trans_b ? k : 1;
  return o;
}

std::string matmul_refusal(const kernels::CallView& call, bool low_precision) {
  for (const kernels::TensorType& type : call.inputs)
    if (type.dtype != hal::DType::f32 && !low_precision)
      return "computes f32 only, not " + std::string(hal::to_string(type.dtype));
  const kernels::MatmulDims dims = kernels::matmul_dims(call);
  const std::int64_t max_dim = std::max({dims.g, dims.m, dims.n, dims.k});
  if (max_dim > std::numeric_limits<std::int32_t>::max())
    return "a dimension of " + std::to_string(max_dim) + " exceeds 32 bits";
  return {};
}

}  // namespace meshloom::backends::cpu
