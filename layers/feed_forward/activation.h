// Activation functions. An activation is both a config and a pure function.
#pragma once

#include <string>

#include "layers/config/config.h"

namespace meshloom::layers {

struct Activation : Config {
  static constexpr std::string_view kAbout = "An elementwise non-linear function.";
  // The function of `x` as an expression (kernels/elementwise/expression.h).
  virtual std::string expression(const std::string& x) const = 0;
  void fields(FieldVisitor&) override {}
};

struct Relu : ConfigOf<Relu, Activation> {
  static constexpr std::string_view kName = "Relu";
  static constexpr std::string_view kAbout = "max(x, 0).";
  std::string expression(const std::string& x) const override;
};

// x sigmoid(x)
struct Silu : ConfigOf<Silu, Activation> {
  static constexpr std::string_view kName = "Silu";
  static constexpr std::string_view kAbout = "x sigmoid(x), also called swish.";
  std::string expression(const std::string& x) const override;
};

// x/2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel, 2016)
struct Gelu : ConfigOf<Gelu, Activation> {
  static constexpr std::string_view kName = "Gelu";
  static constexpr std::string_view kAbout = "x/2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel, 2016).";
  std::string expression(const std::string& x) const override;
};

// The approximation of Gelu by tanh, which GPT-2 uses.
struct GeluTanh : ConfigOf<GeluTanh, Activation> {
  static constexpr std::string_view kName = "GeluTanh";
  static constexpr std::string_view kAbout = "The approximation of Gelu by tanh, which GPT-2 uses.";
  std::string expression(const std::string& x) const override;
};

}  // namespace meshloom::layers
