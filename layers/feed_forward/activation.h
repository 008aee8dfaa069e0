// Activation functions. An activation is both a config and a pure function.
#pragma once

#include "kernels/elementwise/expr.h"
#include "layers/config/config.h"

namespace meshloom::layers {

struct Activation : Config {
  static constexpr std::string_view kAbout = "An elementwise non-linear function.";
  virtual kernels::Expr apply(const kernels::Expr& x) const = 0;
  void fields(FieldVisitor&) override {}
};

struct Relu : ConfigOf<Relu, Activation> {
  static constexpr std::string_view kName = "Relu";
  static constexpr std::string_view kAbout = "max(x, 0).";
  kernels::Expr apply(const kernels::Expr& x) const override;
};

// x sigmoid(x)
struct Silu : ConfigOf<Silu, Activation> {
  static constexpr std::string_view kName = "Silu";
  static constexpr std::string_view kAbout = "x sigmoid(x), also called swish.";
  kernels::Expr apply(const kernels::Expr& x) const override;
};

// x/2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel, 2016)
struct Gelu : ConfigOf<Gelu, Activation> {
  static constexpr std::string_view kName = "Gelu";
  static constexpr std::string_view kAbout = "x/2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel, 2016).";
  kernels::Expr apply(const kernels::Expr& x) const override;
};

// The approximation of Gelu by tanh, which GPT-2 uses.
struct GeluTanh : ConfigOf<GeluTanh, Activation> {
  static constexpr std::string_view kName = "GeluTanh";
  static constexpr std::string_view kAbout = "The approximation of Gelu by tanh, which GPT-2 uses.";
  kernels::Expr apply(const kernels::Expr& x) const override;
};

}  // namespace meshloom::layers
