// Products of 16-bit floats with quantized weights on matrix units: the weights become floats of the activations' dtype in the
// workspace, and a variant of matmul multiplies them. The rounding is that of a dequantized copy of the weights in that dtype.
#pragma once

#include <string>

#include "backends/simt/host/launch.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::backends::simt {

// An op y = x W (+ bias) (+ residual) with quantized W, whose call has x (M, K) first.
struct QuantizedWeights {
  kernels::MatmulDims (*dims)(const kernels::CallView& call);
  // The reason why W cannot be dequantized as whole words of 16-bit floats, or "".
  std::string (*unsupported)(const kernels::CallView& call);
  // Records the dequantization of W to floats of `dtype`: (N, K) where dims say trans_b, else (K, N).
  void (*dequantize)(const kernels::EncodeArgs& args, hal::DType dtype, const hal::Binding& into);
};

// The parts of a variant with these weights whose products are those of the variant `matmul`.
kernels::Fit fit_dequantized(const QuantizedWeights& weights, const kernels::Variant& matmul,
                             const kernels::CallView& call, const hal::DeviceInfo& target);
std::vector<kernels::Fit> dequantized_alternatives(const QuantizedWeights& weights,
                                                   const kernels::Variant& matmul,
                                                   const kernels::CallView& call,
                                                   const hal::DeviceInfo& target);
void encode_dequantized(const QuantizedWeights& weights, const kernels::Variant& matmul,
                        const kernels::EncodeArgs& args);

// The variant, of matmul's name.
template <const QuantizedWeights& weights, kernels::Variant (*matmul)()>
kernels::Variant dequantized() {
  using kernels::CallView;
  static const kernels::Variant product = matmul();
  kernels::Variant variant = product;
  variant.about =
      "weights dequantized to 16-bit floats in the workspace, multiplied as matmul's variant of this name "
      "does";
  variant.fit = [](const CallView& call, const hal::DeviceInfo& target) {
    return fit_dequantized(weights, product, call, target);
  };
  variant.alternatives = [](const CallView& call, const hal::DeviceInfo& target) {
    return dequantized_alternatives(weights, product, call, target);
  };
  variant.encode = [](const kernels::EncodeArgs& args) { encode_dequantized(weights, product, args); };
  return variant;
}

// Those of the ops with such weights.
extern const QuantizedWeights nf4_weights, block_quantized_weights;

}  // namespace meshloom::backends::simt
