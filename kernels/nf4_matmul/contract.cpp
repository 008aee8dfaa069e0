#include <utility>

#include "kernels/core/catalog.h"
#include "kernels/core/epilogue.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/nf4_matmul/nf4.h"
#include "kernels/nf4_matmul/parts.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("nf4_matmul", inputs, attrs);
  rules.attributes({"columns", "block"}, {"trans_b", "double", "bias", "residual"});
  std::vector<std::string> names{"x", "codes", "scales"};
  const bool twice = rules.flag("double");
  if (twice) names.push_back("steps");
  if (rules.flag("bias")) names.push_back("bias");
  if (rules.flag("residual")) names.push_back("residual");
  rules.inputs(std::move(names));
  rules.floating(0);
  rules.dtype(1, DType::u8);
  rules.dtype(2, twice ? DType::u8 : DType::f32);
  rules.rank(0, 2, 2);
  rules.rank(1, 2, 2);
  const std::int64_t columns = rules.integer("columns"), block = rules.integer("block"),
                     rows = rules[1].dim(0);
  nf4_matmul_parts::require_sizes(rules, columns, block);
  rules.shape(1, {rows, nf4::row_bytes(columns)});
  rules.shape(2, {rows, nf4::blocks(columns, block)});
  const bool trans_b = rules.flag("trans_b");
  rules.shape(0, {rules[0].dim(0), trans_b ? columns : rows});
  const std::int64_t n = trans_b ? rows : columns;
  int next = 3;
  if (twice) {
    rules.dtype(next, DType::f32);
    rules.shape(next++, {rows});
  }
  return infer_with_epilogue(rules, next, n);
}

double flops(const CallView& call) {
  const Nf4MatmulDims d = nf4_matmul_dims(call);
  return 2.0 * static_cast<double>(d.m) * static_cast<double>(d.n) * static_cast<double>(d.k);
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  std::vector<Tensor> result(args.inputs.size());
  const Tensor dy = args.cotangents[0];
  if (!dy) return result;
  const CallTypes types(args.builder.program(), args.call);
  const Nf4MatmulDims d = nf4_matmul_dims(types.view(args.call));
  result[0] = nf4_matmul(dy, args.inputs[1], args.inputs[2],
                         {.columns = d.columns,
                          .block = d.block,
                          .trans_b = !d.trans_b,
                          .steps = d.steps >= 0 ? args.inputs[static_cast<std::size_t>(d.steps)] : Tensor{}});
  if (d.bias >= 0) result[static_cast<std::size_t>(d.bias)] = reduce_sum(dy, 1);
  if (d.residual >= 0) result[static_cast<std::size_t>(d.residual)] = dy;
  return result;
}

// Columns are cut by whole blocks: as many places of codes and of scales then. K is whole where there is a residual.
std::string partition(const CallView& call) {
  const Nf4MatmulDims d = nf4_matmul_dims(call);
  const bool whole_k = d.residual >= 0;
  const std::string columns = d.columns % d.block != 0 ? "."
                              : !d.trans_b             ? "K"
                              : whole_k                ? "."
                                                       : "k",
                    rows = d.trans_b ? "n"
                           : whole_k ? "."
                                     : "r",
                    of_weight = "," + rows + columns, n = d.trans_b ? rows : columns;
  return "m" + (d.trans_b ? columns : rows) + of_weight + of_weight + (d.steps >= 0 ? "," + rows : "") +
         (d.bias >= 0 ? "," + n : "") + (d.residual >= 0 ? ",m" + n : "") + "->m" + n;
}

std::vector<Tensor> local(const LocalArgs& args) {
  const Nf4MatmulDims d = nf4_matmul_dims(args.whole);
  Attrs attrs = args.attrs;
  if (const auto cut = args.cuts.find(d.trans_b ? 'k' : 'K'); cut != args.cuts.end())
    attrs.set("columns", d.columns / cut->second.places);
  std::vector<Tensor> inputs = args.inputs;
  // One of the shards that sum adds the bias.
  const auto bias = static_cast<std::size_t>(d.bias);
  if (const auto summed = args.cuts.find(d.trans_b ? 'k' : 'r'); d.bias >= 0 && summed != args.cuts.end())
    inputs[bias] = scale(inputs[bias], summed->second.place == 0 ? 1 : 0);
  return args.builder.call(args.whole.op, inputs, attrs);
}

LowPrecision low_precision(const CallView& call) {
  const int residual = nf4_matmul_dims(call).residual;
  if (residual < 0) return {.same = {0}};
  return {.same = {0, residual}};
}

std::vector<std::pair<int, int>> in_place(const CallView& call) {
  return residual_in_place(nf4_matmul_dims(call).residual);
}

Tolerance tolerance(const CallView& call) {
  return quantized_weights_tolerance(static_cast<double>(nf4_matmul_dims(call).k), call.inputs[0].dtype);
}

}  // namespace

Nf4MatmulDims nf4_matmul_dims(const CallView& call) {
  const std::int64_t rows = call.inputs[1].dim(0), columns = call.attrs.integer("columns");
  const bool trans_b = call.attrs.flag("trans_b");
  int next = 3;
  const auto input = [&](const char* flag) { return call.attrs.flag(flag) ? next++ : -1; };
  const int steps = input("double"), bias = input("bias"), residual = input("residual");
  return {call.inputs[0].dim(0),
          trans_b ? rows : columns,
          trans_b ? columns : rows,
          rows,
          columns,
          call.attrs.integer("block"),
          trans_b,
          steps,
          bias,
          residual};
}

Tensor nf4_matmul(Tensor x, Tensor codes, Tensor scales, const Nf4Options& options) {
  std::vector<Tensor> inputs{x, codes, scales};
  Attrs attrs{{"columns", options.columns}, {"block", options.block}};
  if (options.trans_b) attrs.set("trans_b", true);
  if (options.steps) {
    attrs.set("double", true);
    inputs.push_back(options.steps);
  }
  if (options.bias) {
    attrs.set("bias", true);
    inputs.push_back(options.bias);
  }
  if (options.residual) {
    attrs.set("residual", true);
    inputs.push_back(options.residual);
  }
  return x.builder->call1("nf4_matmul", inputs, std::move(attrs));
}

void nf4_matmul_parts::require_sizes(const Rules& rules, std::int64_t columns, std::int64_t block) {
  rules.require(columns >= 1, "columns must be at least 1", std::to_string(columns));
  rules.require(block >= 8 && block % 8 == 0, "block must be a multiple of 8", std::to_string(block));
}

void add_nf4_matmul(Catalog& catalog) {
  catalog.add(nf4_matmul_parts::unpack_contract());
  catalog.add(nf4_matmul_parts::pack_contract());
  catalog.add(Contract{.name = "nf4_matmul",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = nf4_matmul_parts::reference,
                       .low_precision = low_precision,
                       .gradient = gradient,
                       .partition = partition,
                       .local = local,
                       .tolerance = tolerance,
                       .cases = nf4_matmul_parts::cases,
                       .in_place = in_place,
                       .make_input = nf4_matmul_parts::make_input,
                       .random_case = nf4_matmul_parts::random_case});
}

}  // namespace meshloom::kernels
