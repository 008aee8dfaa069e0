// Low-rank adaptation: a frozen weight W and a learned change s B A of rank `rank`, s = alpha / rank.
#pragma once

#include "layers/adapters/adapter.h"

namespace meshloom::layers {

struct LowRank : Adapter::Config {
  std::int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;                       // of x on its way to A, in training
  Child<Initializer> init = FanInNormal{};  // of A; B starts as zeros, so that the model starts as it was

  void fields(FieldVisitor& v) override;
};

// y = W x + b + s B (A x) (Hu et al., 2021). Below experts each has an A and a B of its own.
class Lora : public Adapter {
 public:
  struct Config : ConfigOf<Config, LowRank> {
    static constexpr std::string_view kName = "Lora";
    static constexpr std::string_view kAbout =
        "A frozen layer plus a learned change of low rank, y = W x + b + s B (A x) (Hu et al., 2021).";
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Lora(const Config& config, const Place& place);
  Fold fold() const override;

 protected:
  Tensor adapt(Context& ctx, Tensor x, Tensor y) override;

 private:
  double scale_, dropout_;
  const Parameter &a_, &b_;  // lora_a (rank, input), lora_b (output, rank); experts in front of both
};

// The same change of direction, and a learned length per output (Liu et al., 2024):
//   V = W + s B A,   y = g |W| / |V| (V x) + b,   |.| = length of each output's row
// The paper's magnitude m is g |W|: written so, g starts as ones whatever W is. The gradient goes through |V|
// too, which is never unpacked or held whole: |V|^2 = |W|^2 + sum over r of b_r (2 s A W^T + s^2 A A^T b)_r,
// b = the row of B.
class Dora : public Adapter {
 public:
  struct Config : ConfigOf<Config, LowRank> {
    static constexpr std::string_view kName = "Dora";
    static constexpr std::string_view kAbout =
        "A change of low rank in direction, and a learned length per output (Liu et al., 2024).";
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Dora(const Config& config, const Place& place);
  Fold fold() const override;

 protected:
  Tensor adapt(Context& ctx, Tensor x, Tensor y) override;

 private:
  double scale_, dropout_;
  const Parameter &a_, &b_, &magnitude_;  // ..., dora_magnitude (output)
  const Parameter* bias_;                 // of the adapted layer; there may be none
};

}  // namespace meshloom::layers
