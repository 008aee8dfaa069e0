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

kernels::Fit fit_few_rows(const kernels::CallView& call, const hal::DeviceInfo& target) {
  if (kernels::Fit packed = fit(call, target); !packed.ok) return packed;
  constexpr std::int64_t kMost = 12, kRows = 16;  // of x; of weights, a work item's
  const kernels::Nf4MatmulDims d = kernels::nf4_matmul_dims(call);
  if (call.inputs[0].dtype != hal::DType::f32) return kernels::Fit::no("computes f32 only");
  if (!d.trans_b) return kernels::Fit::no("is for weights whose rows give one output each");
  if (d.m > kMost)
    return kernels::Fit::no("is for at most " + std::to_string(kMost) + " rows, not " + std::to_string(d.m));
  return kernels::Fit::yes({{"tile_m", d.m}, {"tile_n", kRows}});
}

void encode_as(const kernels::EncodeArgs& args, const char* kernel) {
  MatmulWork work = work_of(args.call);
  take_tiles(args.choice, work);
  // x, codes, the bias if any, scales, their steps if any
  std::vector<hal::Binding> inputs(args.inputs.begin(), args.inputs.end());
  if (work.has_bias) std::rotate(inputs.begin() + 2, inputs.end() - 1, inputs.end());
  record({args.call, args.choice, args.device, args.commands, inputs, args.outputs, {}, args.label}, kernel,
         {static_cast<std::uint32_t>(work.tiles_m()), static_cast<std::uint32_t>(work.tiles_n()), 1},
         to_words(work));
}

void encode(const kernels::EncodeArgs& args) { encode_as(args, "matmul_packed"); }
void encode_few_rows(const kernels::EncodeArgs& args) { encode_as(args, "nf4_matmul_few_rows"); }

}  // namespace

std::vector<Kernel> nf4_matmul_kernels() { return {{"nf4_matmul_few_rows", run_nf4_matmul_few_rows}}; }

void add_nf4_matmul_variants(kernels::Catalog& catalog) {
  kernels::Variant variant{
      "nf4_matmul", "cpu", "packed", {}, 10, "the packed matmul: weights become f32 by the block, in cache",
      fit,          encode};
  variant.narrow = true;
  catalog.add(std::move(variant));
  catalog.add(kernels::Variant{
      "nf4_matmul",
      "cpu",
      "few_rows",
      {},
      20,
      "each weight becomes f32 in registers and meets all rows: four bits from memory, not 32",
      fit_few_rows,
      encode_few_rows});
}

}  // namespace meshloom::backends::cpu
