// Pointwise non-linearities. An activation is a config and a pure function at once.
#pragma once

#include <string>

#include "layers/config/config.h"

namespace meshloom::layers {

struct Activation : Config {
  // The function of `x` in the language of kernels/elementwise/expression.h.
  virtual std::string expression(const std::string& x) const = 0;
  void fields(FieldVisitor&) override {}
};

struct Relu : ConfigOf<Relu, Activation> {
  static constexpr std::string_view kName = "Relu";
  std::string expression(const std::string& x) const override;
};

// x sigmoid(x)
struct Silu : ConfigOf<Silu, Activation> {
  static constexpr std::string_view kName = "Silu";
  std::string expression(const std::string& x) const override;
};

// x/2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel, 2016)
struct Gelu : ConfigOf<Gelu, Activation> {
  static constexpr std::string_view kName = "Gelu";
  std::string expression(const std::string& x) const override;
};

// Their approximation by tanh, which GPT-2 uses.
struct GeluTanh : ConfigOf<GeluTanh, Activation> {
  static constexpr std::string_view kName = "GeluTanh";
  std::string expression(const std::string& x) const override;
};

}  // namespace meshloom::layers
