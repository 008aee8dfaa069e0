#include "backends/simt/kernels/matmul/dequantized.h"

#include <utility>

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;
using kernels::TensorType;
using kernels::Variant;

// What dequantizing reads and writes takes as long as about so many rows take in f32.
constexpr std::int64_t kMinRows = 64;

// The call of matmul.
struct Product {
  std::vector<TensorType> inputs, outputs;
  kernels::Attrs attrs;

  Product(const CallView& call, const MatmulDims& d) : outputs(call.outputs) {
    const TensorType& x = call.inputs[0];
    inputs = {x, {x.dtype, d.trans_b ? kernels::Shape{d.n, d.k} : kernels::Shape{d.k, d.n}}};
    if (d.trans_b) attrs.set("trans_b", true);
    if (d.bias >= 0) {
      inputs.push_back(call.inputs[static_cast<std::size_t>(d.bias)]);
      attrs.set("bias", true);
    }
    if (d.residual >= 0) {
      inputs.push_back(call.inputs[static_cast<std::size_t>(d.residual)]);
      attrs.set("residual", true);
    }
  }
  CallView view() const { return {"matmul", inputs, outputs, attrs}; }
  std::int64_t weight_bytes() const { return aligned(inputs[1].bytes()); }
};

std::string unsupported(const QuantizedWeights& weights, const CallView& call, const MatmulDims& d) {
  if (!hal::is_low_precision(call.inputs[0].dtype))
    return "takes 16-bit floats only, not " + std::string(hal::to_string(call.inputs[0].dtype));
  if (std::string reason = unsupported_size(call); !reason.empty()) return reason;
  if (d.m < kMinRows)
    return "takes at least " + std::to_string(kMinRows) + " rows, which dequantizing repays, not " +
           std::to_string(d.m);
  return weights.unsupported(call);
}

Fit with_weights(Fit fit, const Product& product) {
  if (fit.ok) fit.workspace_bytes += product.weight_bytes();
  return fit;
}

}  // namespace

Fit fit_dequantized(const QuantizedWeights& weights, const Variant& matmul, const CallView& call,
                    const hal::DeviceInfo& target) {
  const MatmulDims d = weights.dims(call);
  if (std::string reason = unsupported(weights, call, d); !reason.empty()) return Fit::no(std::move(reason));
  const Product product(call, d);
  return with_weights(matmul.fit(product.view(), target), product);
}

std::vector<Fit> dequantized_alternatives(const QuantizedWeights& weights, const Variant& matmul,
                                          const CallView& call, const hal::DeviceInfo& target) {
  const MatmulDims d = weights.dims(call);
  if (!matmul.alternatives || !unsupported(weights, call, d).empty()) return {};
  const Product product(call, d);
  std::vector<Fit> all = matmul.alternatives(product.view(), target);
  for (Fit& fit : all) fit = with_weights(std::move(fit), product);
  return all;
}

void encode_dequantized(const QuantizedWeights& weights, const Variant& matmul, const EncodeArgs& args) {
  const MatmulDims d = weights.dims(args.call);
  const Product product(args.call, d);
  const hal::DType dtype = args.call.inputs[0].dtype;
  const hal::Binding w = slice(args.workspace, 0, product.inputs[1].bytes());
  weights.dequantize(args, dtype, writes(w));
  args.commands.barrier();
  std::vector<hal::Binding> inputs{args.inputs[0], reads(w)};
  for (const int index : {d.bias, d.residual})
    if (index >= 0) inputs.push_back(args.inputs[static_cast<std::size_t>(index)]);
  const std::int64_t rest = args.workspace.bytes - product.weight_bytes();
  matmul.encode({product.view(), args.choice, args.device, args.commands, inputs, args.outputs,
                 rest > 0 ? slice(args.workspace, product.weight_bytes(), rest) : hal::Binding{},
                 args.label});
}

}  // namespace meshloom::backends::simt
