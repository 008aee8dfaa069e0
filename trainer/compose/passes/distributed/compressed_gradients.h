// The sums of gradients over ranks that move in fewer bits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "kernels/program/builder.h"
#include "trainer/compose/passes/distributed/compression.h"
#include "trainer/mesh/spec.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// With what the names of these states begin: "optimizer/gradient_error_<axes>/<path>" is what rounding lost of the gradient of the
// parameter `path` on the rank that sent it, over these axes.
constexpr std::string_view kGradientError = "optimizer/gradient_error_";

class CompressedGradients {
 public:
  // `axes` are those over which ranks may have gradients of their own. `divided` gets the states.
  CompressedGradients(kernels::DType dtype, AxisSet axes, const Topology& mesh, kernels::Builder& builder,
                      std::map<std::string, Division>& divided)
      : compressor_(dtype), axes_(axes), mesh_(mesh), builder_(builder), divided_(divided) {}

  bool enabled() const { return !compressor_.is_exact(); }

  // Adds up x, in row-major order, over `over`: place i gets the i-th of the parts that these sizes say. `largest` is the largest
  // part of any rank of the mesh; where it has fewer elements than share a scale there is nothing to gain, and the result is empty.
  // What rounding loses of the gradient of the parameter `path` is a state of this rank.
  kernels::Tensor scatter_sum(const std::string& path, kernels::Tensor x, AxisSet over,
                              const kernels::collective::Sizes& parts, std::int64_t largest);

 private:
  Compressor compressor_;
  AxisSet axes_;
  const Topology& mesh_;
  kernels::Builder& builder_;
  std::map<std::string, Division>& divided_;
};

}  // namespace meshloom::trainer
