// Products by group for any device, four by four elements per invocation. GPUs have matmul's tiles (product_of of matmul.h).
#include "kernels/grouped_matmul/grouped_matmul.h"

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kBlock = 4;    // rows and columns of an invocation
constexpr std::int64_t kSearch = 32;  // steps to a row's group, at most
std::int64_t blocks(std::int64_t length) { return ceil_div(length, kBlock); }

Fit fit_loops(const CallView& call, const hal::DeviceInfo& target, std::int64_t iterations) {
  std::string reason = unsupported_dtype(call);
  if (reason.empty()) reason = unsupported_iterations(target, static_cast<double>(iterations));
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}
Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  // Each row of a block may be of another group.
  return fit_loops(call, target, kBlock * (kernels::grouped_matmul_dims(call).k + kSearch + kBlock));
}
// A group may hold every row.
Fit fit_rows(const CallView& call, const hal::DeviceInfo& target) {
  return fit_loops(call, target, call.inputs[0].dim(0));
}

void encode(const EncodeArgs& args) {
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(args.call);
  const std::int64_t items = blocks(d.rows) * blocks(d.n);
  launch_rows(
      args, items,
      {.kernel = "grouped_matmul",
       .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]),
                    reads(args.inputs[d.bias ? 3 : 1]), writes(args.outputs[0])},
       .constants = {hal::word(items), hal::word(d.rows), hal::word(d.n), hal::word(d.k), hal::word(d.groups),
                     hal::word(std::int64_t{d.trans_b}), hal::word(std::int64_t{d.bias})}});
}

void encode_outer(const EncodeArgs& args) {
  const kernels::TensorType& c = args.call.outputs[0];
  const std::int64_t items = c.dim(0) * blocks(c.dim(1)) * blocks(c.dim(2));
  launch_rows(args, items,
              {.kernel = "grouped_outer",
               .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]),
                            writes(args.outputs[0])},
               .constants = {hal::word(items), hal::word(c.dim(1)), hal::word(c.dim(2))}});
}

void encode_sum(const EncodeArgs& args) {
  const kernels::TensorType& sums = args.call.outputs[0];
  launch_rows(args, sums.elements(),
              {.kernel = "grouped_sum",
               .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
               .constants = {hal::word(sums.elements()), hal::word(sums.dim(1))}});
}

}  // namespace

kernels::Variant grouped_gpu_tile();  // matmul_gpu_tile.cpp

std::vector<kernels::OpVariants> grouped_matmul_ops() {
  return {{"grouped_matmul",
           {grouped_gpu_tile(), simt_variant("four rows by four columns per invocation", fit, encode)}},
          {"grouped_outer",
           {grouped_gpu_tile(),
            simt_variant("four by four elements per invocation, rows in order", fit_rows, encode_outer)}},
          {"grouped_sum", {simt_variant("one column per invocation, rows in order", fit_rows, encode_sum)}}};
}

}  // namespace meshloom::backends::simt
