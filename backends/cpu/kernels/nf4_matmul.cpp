// The product with four-bit weights is the packed matmul whose right side is widened block by block.
#include "kernels/nf4_matmul/nf4_matmul.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/entries.h"
#include "backends/cpu/kernels/matmul_work.h"

namespace meshloom::backends::cpu {
namespace {

MatmulWork work_of(const kernels::CallView& call) {
  const kernels::Nf4MatmulDims d = kernels::nf4_matmul_dims(call);
  MatmulWork work{};
  work.g = 1;
  work.m = static_cast<std::int32_t>(d.m);
  work.n = static_cast<std::int32_t>(d.n);
  work.k = static_cast<std::int32_t>(d.k);
  work.trans_b = d.trans_b;
  work.has_bias = d.bias >= 0;
  work.dtype = call.inputs[0].dtype;
  work.result = call.outputs[0].dtype;
  work.nf4 = d.steps >= 0 ? 2 : 1;
  work.block = static_cast<std::int32_t>(d.block);
  return work;
}

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo& target) {
  const kernels::Nf4MatmulDims d = kernels::nf4_matmul_dims(call);
  const std::int64_t largest = std::max({d.m, d.n, d.k, d.block});
  if (largest > std::numeric_limits<std::int32_t>::max())
    return kernels::Fit::no("a dimension of " + std::to_string(largest) + " exceeds 32 bits");
  return fit_packed_slabs(work_of(call), target);
}

void encode(const kernels::EncodeArgs& args) {
  MatmulWork work = work_of(args.call);
  const auto& params = args.choice.params;
  work.tile_m = static_cast<std::int32_t>(params.at("tile_m"));
  work.tile_n = static_cast<std::int32_t>(params.at("tile_n"));
  work.tile_k = static_cast<std::int32_t>(params.at("tile_k"));
  work.panel = static_cast<std::int32_t>(params.at("panel"));
  work.swapped = static_cast<std::int32_t>(params.at("swapped"));
  // x, codes, the bias if any, scales, their steps if any
  std::vector<hal::Binding> inputs(args.inputs.begin(), args.inputs.end());
  if (work.has_bias) std::rotate(inputs.begin() + 2, inputs.end() - 1, inputs.end());
  record({args.call, args.choice, args.device, args.commands, inputs, args.outputs, {}, args.label},
         "matmul_packed",
         {static_cast<std::uint32_t>(work.tiles_m()), static_cast<std::uint32_t>(work.tiles_n()), 1},
         to_words(work));
}

}  // namespace

void add_nf4_matmul_variants(kernels::Catalog& catalog) {
  kernels::Variant variant{
      "nf4_matmul", "cpu", "packed", {}, 10, "the packed matmul: weights become f32 by the block, in cache",
      fit,          encode};
  variant.narrow = true;
  catalog.add(std::move(variant));
}

}  // namespace meshloom::backends::cpu
