#include "backends/simt/kernels/matmul/matmul.h"

#include <algorithm>
#include <limits>

#include "kernels/grouped_matmul/grouped_matmul.h"

namespace meshloom::backends::simt {

std::vector<KPart> k_parts(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims,
                           std::int64_t depth, const hal::Binding& sums) {
  const auto input = [&](int index) {
    return reads(whole_words(args.inputs[static_cast<std::size_t>(index)]));
  };
  std::vector<KPart> parts;
  for (std::int64_t begin = 0; begin < dims.k; begin += depth) {
    const std::int64_t end = std::min(begin + depth, dims.k);
    const bool first = begin == 0, last = end == dims.k;
    const bool bias = last && dims.bias >= 0, residual = last && dims.residual >= 0;
    const auto activation = static_cast<std::int64_t>(last ? dims.activation : kernels::Activation::none);
    parts.push_back({begin,
                     end,
                     {input(0), input(1), input(bias ? dims.bias : 1), input(residual ? dims.residual : 1),
                      writes(last ? whole_words(args.outputs[0]) : sums), first ? input(1) : reads(sums)},
                     hal::word(std::int64_t{(bias ? 1 : 0) + (residual ? 2 : 0) + (dims.trans_a ? 4 : 0) +
                                            (dims.trans_b ? 8 : 0) + (first ? 0 : 16)}),
                     define("ACTIVATION", activation)});
  }
  return parts;
}

std::int64_t k_depth(const hal::DeviceInfo& target, std::int64_t k, std::int64_t step, std::int64_t per_step,
                     std::int64_t fixed) {
  const std::int64_t max_steps = (max_iterations(target) - fixed) / per_step;
  if (max_steps < 1) return 0;
  const std::int64_t steps = ceil_div(k, step);
  return ceil_div(steps, ceil_div(steps, max_steps)) * step;
}

std::int64_t sums_bytes(const kernels::MatmulDims& dims, std::int64_t depth) {
  return dims.k > depth ? aligned(4 * dims.g * dims.m * dims.n) : 0;
}

std::int64_t max_rounds(const hal::DeviceInfo& target, std::int64_t iterations) {
  return max_iterations(target) / iterations;
}

std::string unsupported_groups(const hal::DeviceInfo& target, std::array<std::int64_t, 3> groups) {
  for (std::size_t d = 0; d < 3; ++d)
    if (groups[d] > target.limits.max_groups[d])
      return "needs " + std::to_string(groups[d]) + " workgroups in dimension " + std::to_string(d) +
             "; the driver's limit is " + std::to_string(target.limits.max_groups[d]);
  return {};
}

std::string unsupported_matmul(const kernels::CallView& call, const hal::DeviceInfo& target,
                               std::array<std::int64_t, 3> groups) {
  std::string reason = unsupported_groups(target, groups);
  return reason.empty() ? unsupported_dtype(call) : reason;
}

std::int64_t load_width(hal::DType dtype, std::int64_t row) {
  const std::int64_t wide = 16 / static_cast<std::int64_t>(hal::size_of(dtype));
  return row % wide == 0 ? wide : 1;
}

std::int64_t grouped_tiles(std::int64_t rows, std::int64_t groups, std::int64_t height) {
  return rows / height + groups + 1;
}

bool rows_share_sets(std::int64_t length) { return length % 512 == 0; }

bool repays_packing(std::int64_t rows, std::int64_t other, std::int64_t floats) {
  constexpr std::int64_t kMinRows = 128;
  return other >= kMinRows && rows >= kMinRows && floats <= std::numeric_limits<std::int32_t>::max();
}

Product product_of(const kernels::CallView& call) {
  if (call.op == "matmul") return {kernels::matmul_dims(call), {}};
  kernels::MatmulDims dims{};
  dims.g = 1;
  dims.bias = dims.residual = -1;
  dims.activation = kernels::Activation::none;
  if (call.op == "grouped_outer") {
    const kernels::TensorType& c = call.outputs[0];
    dims.g = c.dim(0);
    dims.m = c.dim(1);
    dims.n = c.dim(2);
    dims.k = call.inputs[0].dim(0);
    dims.trans_a = true;
    return {dims, {.step_groups = dims.g}};
  }
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(call);
  dims.m = d.rows;
  dims.n = d.n;
  dims.k = d.k;
  dims.trans_b = d.trans_b;
  if (d.bias) dims.bias = 3;
  return {dims, {.row_groups = d.groups}};
}

void Product::add_groups(const kernels::EncodeArgs& args, Launch& own) const {
  if (!use.grouped()) return;
  own.defines.push_back(define("GROUPED", use.row_groups > 0 ? 1 : 2));
  own.bindings.push_back(reads(args.inputs[2]));
  own.constants.push_back(hal::word(use.row_groups + use.step_groups));
}

std::array<std::uint32_t, 3> matmul_groups(std::array<std::int64_t, 3> groups) {
  return {static_cast<std::uint32_t>(groups[0]), static_cast<std::uint32_t>(groups[1]),
          static_cast<std::uint32_t>(groups[2])};
}

}  // namespace meshloom::backends::simt
