#include <utility>

#include "kernels/catalog.h"
#include "kernels/nf4_matmul/nf4.h"
#include "kernels/nf4_matmul/parts.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/rules.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("nf4_matmul", inputs, attrs);
  rules.attributes({"columns", "block"}, {"trans_b", "bias"});
  std::vector<std::string> names{"x", "codes", "scales"};
  if (rules.flag("bias")) names.push_back("bias");
  rules.inputs(std::move(names));
  rules.floating(0);
  rules.dtype(1, DType::u8);
  rules.dtype(2, DType::f32);
  rules.rank(0, 2, 2);
  rules.rank(1, 2, 2);
  const std::int64_t columns = rules.integer("columns"), block = rules.integer("block"),
                     rows = rules[1].dim(0);
  rules.require(columns >= 1, "columns must be at least 1", std::to_string(columns));
  rules.require(block >= 8 && block % 8 == 0, "block must be a multiple of 8", std::to_string(block));
  rules.shape(1, {rows, nf4::row_bytes(columns)});
  rules.shape(2, {rows, nf4::blocks(columns, block)});
  const bool trans_b = rules.flag("trans_b");
  rules.shape(0, {rules[0].dim(0), trans_b ? columns : rows});
  const std::int64_t n = trans_b ? rows : columns;
  if (rules.flag("bias")) {
    rules.dtype(3, DType::f32);
    rules.shape(3, {n});
  }
  return {{rules[0].dtype, {rules[0].dim(0), n}}};
}

double flops(const CallView& call) {
  const Nf4MatmulDims d = nf4_matmul_dims(call);
  return 2.0 * static_cast<double>(d.m) * static_cast<double>(d.n) * static_cast<double>(d.k);
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  std::vector<Tensor> result(args.inputs.size());
  const Tensor dy = args.cotangents[0];
  if (!dy) return result;
  const Attrs& attrs = args.call.attrs;
  result[0] = nf4_matmul(dy, args.inputs[1], args.inputs[2],
                         {.columns = attrs.integer("columns"),
                          .block = attrs.integer("block"),
                          .trans_b = !attrs.flag("trans_b")});
  if (result.size() > 3) result[3] = reduce_sum(dy, 1);
  return result;
}

// Columns are cut by whole blocks or not at all: not at all.
std::string partition(const CallView& call) {
  const Nf4MatmulDims d = nf4_matmul_dims(call);
  if (d.trans_b) return d.bias >= 0 ? "m.,n.,n.,n->mn" : "m.,n.,n.->mn";
  return d.bias >= 0 ? "m.,..,..,.->m." : "mk,k.,k.->m.";
}

Narrow narrow(const CallView&) { return {.same = {0}}; }

Tolerance tolerance(const CallView& call) {
  return sum_tolerance(static_cast<double>(nf4_matmul_dims(call).k), 8);
}

}  // namespace

Nf4MatmulDims nf4_matmul_dims(const CallView& call) {
  const std::int64_t rows = call.inputs[1].dim(0), columns = call.attrs.integer("columns");
  const bool trans_b = call.attrs.flag("trans_b");
  return {call.inputs[0].dim(0),
          trans_b ? rows : columns,
          trans_b ? columns : rows,
          rows,
          columns,
          call.attrs.integer("block"),
          trans_b,
          call.attrs.flag("bias") ? 3 : -1};
}

Tensor nf4_matmul(Tensor x, Tensor codes, Tensor scales, const Nf4Options& options) {
  std::vector<Tensor> inputs{x, codes, scales};
  Attrs attrs{{"columns", options.columns}, {"block", options.block}};
  if (options.trans_b) attrs.set("trans_b", true);
  if (options.bias) {
    attrs.set("bias", true);
    inputs.push_back(options.bias);
  }
  return x.builder->call1("nf4_matmul", inputs, std::move(attrs));
}

void add_nf4_matmul(Catalog& catalog) {
  catalog.add(Contract{.name = "nf4_matmul",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = nf4_matmul_parts::reference,
                       .narrow = narrow,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = nf4_matmul_parts::cases,
                       .in_place = never_in_place,
                       .make_input = nf4_matmul_parts::make_input,
                       .random_case = nf4_matmul_parts::random_case});
}

}  // namespace meshloom::kernels
