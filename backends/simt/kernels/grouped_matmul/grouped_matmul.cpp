// Products by group: for GPUs in the tiles of matmul_gpu_tile, and four by four elements per invocation for any device.
#include "kernels/grouped_matmul/grouped_matmul.h"

#include "backends/simt/host/launch.h"
#include "backends/simt/kernels/matmul/matmul.h"

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

// All rows of x with the matrices of w, each row with that of its group.
kernels::MatmulDims rows_of(const kernels::GroupedMatmulDims& d) {
  return {.g = 1,
          .m = d.rows,
          .n = d.n,
          .k = d.k,
          .trans_a = false,
          .trans_b = d.trans_b,
          .bias = d.bias ? 3 : -1,
          .residual = -1,
          .activation = kernels::Activation::none};
}
// A^T B over all rows, each group's into a matrix of its own.
kernels::MatmulDims steps_of(const CallView& call) {
  const kernels::TensorType& c = call.outputs[0];
  return {.g = c.dim(0),
          .m = c.dim(1),
          .n = c.dim(2),
          .k = call.inputs[0].dim(0),
          .trans_a = true,
          .trans_b = false,
          .bias = -1,
          .residual = -1,
          .activation = kernels::Activation::none};
}

Fit fit_tiles(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_dtype(call); !reason.empty()) return Fit::no(reason);
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(call);
  return gpu_tile_fit(rows_of(d), target, {.row_groups = d.groups});
}
std::vector<Fit> tile_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  if (!unsupported_dtype(call).empty()) return {};
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(call);
  return gpu_tile_alternatives(rows_of(d), target, {.row_groups = d.groups});
}
void encode_tiles(const EncodeArgs& args) {
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(args.call);
  encode_gpu_tile(args, rows_of(d),
                  {.defines = {{"GROUPED", "1"}},
                   .bindings = {reads(args.inputs[2])},
                   .constants = {hal::word(d.groups)}},
                  {.row_groups = d.groups});
}

Fit fit_outer_tiles(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_dtype(call); !reason.empty()) return Fit::no(reason);
  return gpu_tile_fit(steps_of(call), target);
}
std::vector<Fit> outer_tile_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  if (!unsupported_dtype(call).empty()) return {};
  return gpu_tile_alternatives(steps_of(call), target);
}
void encode_outer_tiles(const EncodeArgs& args) {
  const kernels::MatmulDims d = steps_of(args.call);
  encode_gpu_tile(
      args, d,
      {.defines = {{"GROUPED", "2"}}, .bindings = {reads(args.inputs[2])}, .constants = {hal::word(d.g)}},
      {.step_groups = true});
}

kernels::Variant gpu_tile(std::string about, decltype(kernels::Variant::fit) fit,
                          decltype(kernels::Variant::encode) encode,
                          decltype(kernels::Variant::alternatives) alternatives) {
  return {.name = "gpu_tile",
          .kinds = {hal::ProfileKind::gpu},
          .about = std::move(about),
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives};
}

void encode_sum(const EncodeArgs& args) {
  const kernels::TensorType& sums = args.call.outputs[0];
  launch_rows(args, sums.elements(),
              {.kernel = "grouped_sum",
               .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
               .constants = {hal::word(sums.elements()), hal::word(sums.dim(1))}});
}

}  // namespace

std::vector<kernels::OpVariants> grouped_matmul_ops() {
  return {{"grouped_matmul",
           {gpu_tile("tiles of one group's rows staged in workgroup memory", fit_tiles, encode_tiles,
                     tile_alternatives),
            simt_variant("four rows by four columns per invocation", fit, encode)}},
          {"grouped_outer",
           {gpu_tile("tiles of one group's matrix, with its rows staged in workgroup memory", fit_outer_tiles,
                     encode_outer_tiles, outer_tile_alternatives),
            simt_variant("four by four elements per invocation, rows in order", fit_rows, encode_outer)}},
          {"grouped_sum", {simt_variant("one column per invocation, rows in order", fit_rows, encode_sum)}}};
}

}  // namespace meshloom::backends::simt
