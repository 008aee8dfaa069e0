#include <algorithm>
#include <array>
#include <utility>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/epilogue.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/parts.h"

namespace meshloom::kernels {
namespace {

constexpr std::array kActivations{Activation::none, Activation::relu, Activation::silu, Activation::gelu,
                                  Activation::gelu_tanh};

Activation activation_of(const Attrs& attrs) {
  if (!attrs.has("activation")) return Activation::none;
  for (Activation activation : kActivations)
    if (to_string(activation) == attrs.text("activation")) return activation;
  throw hal::Error("matmul", "activation must be none, relu, silu, gelu or gelu_tanh",
                   "'" + attrs.text("activation") + "'");
}

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("matmul", inputs, attrs);
  rules.attributes({}, {"trans_a", "trans_b", "bias", "residual", "activation", "dtype"});
  std::vector<std::string> names{"A", "B"};
  if (rules.flag("bias")) names.push_back("bias");
  if (rules.flag("residual")) names.push_back("residual");
  rules.inputs(std::move(names));
  if (attrs.has("activation")) (void)rules.text("activation");
  (void)activation_of(attrs);
  rules.floats({0, 1});
  const DType dtype = rules.result_dtype(rules[0].dtype);
  rules.rank(0, 2, 3);
  rules.rank(1, rules[0].rank(), rules[0].rank());

  const bool trans_a = rules.flag("trans_a"), trans_b = rules.flag("trans_b");
  const std::int64_t m = rules[0].dim(trans_a ? -1 : -2), k = rules[0].dim(trans_a ? -2 : -1);
  const std::int64_t n = rules[1].dim(trans_b ? -2 : -1), k_b = rules[1].dim(trans_b ? -1 : -2);
  rules.require(k == k_b, "A and B must have the same inner dimension",
                to_string(inputs[0]) + (trans_a ? " transposed" : "") + " and " + to_string(inputs[1]) +
                    (trans_b ? " transposed" : ""));
  Shape shape{m, n};
  if (rules[0].rank() == 3) {
    rules.require(rules[0].dim(0) == rules[1].dim(0), "A and B must have the same batch",
                  to_string(inputs[0]) + " and " + to_string(inputs[1]));
    shape.insert(shape.begin(), rules[0].dim(0));
  }
  int next = 2;
  if (rules.flag("bias")) {
    rules.dtype(next, DType::f32);
    rules.shape(next++, {n});
  }
  if (rules.flag("residual")) {
    rules.dtype(next, dtype);
    rules.shape(next++, shape);
  }
  return {{dtype, shape}};
}

double flops(const CallView& call) {
  const MatmulDims dims = matmul_dims(call);
  return 2.0 * static_cast<double>(dims.g) * static_cast<double>(dims.m) * static_cast<double>(dims.n) *
         static_cast<double>(dims.k);
}

std::string partition(const CallView& call) {
  const MatmulDims dims = matmul_dims(call);
  const std::string g = call.inputs[0].rank() == 3 ? "g" : "";
  // An activation needs the whole sum; a bias is added by one shard.
  const std::string k = dims.residual < 0 && dims.activation == Activation::none ? "k" : ".";
  std::string text = g + (dims.trans_a ? k + "m" : "m" + k) + "," + g + (dims.trans_b ? "n" + k : k + "n");
  if (dims.bias >= 0) text += ",n";
  if (dims.residual >= 0) text += "," + g + "mn";
  return text + "->" + g + "mn";
}

std::vector<Tensor> local(const LocalArgs& args) {
  std::vector<Tensor> inputs = args.inputs;
  const int bias = matmul_dims(args.whole).bias;
  if (const auto k = args.cuts.find('k'); k != args.cuts.end() && bias >= 0) {
    Tensor& of_one = inputs[static_cast<std::size_t>(bias)];
    of_one = scale(of_one, k->second.place == 0 ? 1 : 0);
  }
  return args.builder.call("matmul", inputs, args.attrs);
}

Tolerance tolerance(const CallView& call) {
  return sum_tolerance(static_cast<double>(matmul_dims(call).k), 8);
}

LowPrecision low_precision(const CallView& call) {
  const MatmulDims dims = matmul_dims(call);
  if (dims.residual < 0 || call.attrs.has("dtype")) return {.same = {0, 1}};
  return {.same = {0, 1, dims.residual}};
}

std::vector<std::pair<int, int>> in_place(const CallView& call) {
  return residual_in_place(matmul_dims(call).residual);
}

}  // namespace

std::string_view to_string(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::silu:
      return "silu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
  }
  return "?";
}

MatmulDims matmul_dims(const CallView& call) {
  const TensorType& a = call.inputs[0];
  const TensorType& b = call.inputs[1];
  MatmulDims dims{};
  dims.trans_a = call.attrs.flag("trans_a");
  dims.trans_b = call.attrs.flag("trans_b");
  dims.g = a.rank() == 3 ? a.dim(0) : 1;
  dims.m = a.dim(dims.trans_a ? -1 : -2);
  dims.k = a.dim(dims.trans_a ? -2 : -1);
  dims.n = b.dim(dims.trans_b ? -2 : -1);
  int next = 2;
  dims.bias = call.attrs.flag("bias") ? next++ : -1;
  dims.residual = call.attrs.flag("residual") ? next++ : -1;
  dims.activation = activation_of(call.attrs);
  return dims;
}

Tensor matmul(Tensor a, Tensor b, const MatmulOptions& options) {
  std::vector<Tensor> inputs{a, b};
  Attrs attrs;
  // Only what differs from the default is written: equal calls have equal attributes.
  if (options.trans_a) attrs.set("trans_a", true);
  if (options.trans_b) attrs.set("trans_b", true);
  if (options.bias) {
    attrs.set("bias", true);
    inputs.push_back(options.bias);
  }
  if (options.residual) {
    attrs.set("residual", true);
    inputs.push_back(options.residual);
  }
  set_result_dtype(attrs, options.dtype, a.dtype());
  if (options.activation != Activation::none)
    attrs.set("activation", std::string(to_string(options.activation)));
  return a.builder->call1("matmul", inputs, std::move(attrs));
}

void add_matmul(Catalog& catalog) {
  catalog.add(Contract{.name = "matmul",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = matmul_parts::reference,
                       .low_precision = low_precision,
                       .gradient = matmul_parts::gradient,
                       .partition = partition,
                       .local = local,
                       .tolerance = tolerance,
                       .cases = matmul_parts::cases,
                       .in_place = in_place,
                       .random_case = matmul_parts::random_case});
}

}  // namespace meshloom::kernels
