// Low-rank adaptation: a frozen weight W plus a learned change s B A of rank `rank`, with s = alpha / rank.
#pragma once

#include "layers/adapters/adapter.h"

namespace meshloom::layers {

struct LowRankConfig : Adapter::Config {
  std::int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;  // of the input of A, in training
  Child<Initializer> init =
      FanInNormal{};  // of A; B is initialised to zeros, so that the model is unchanged at first

  void fields(FieldVisitor& v) override;
};

// LoRA: y = W x + b + s B (A x) (Hu et al., 2021). Below a mixture of experts each expert has its own A and B.
class Lora : public Adapter {
 public:
  struct Config : ConfigOf<Config, LowRankConfig> {
    static constexpr std::string_view kName = "Lora";
    static constexpr std::string_view kAbout =
        "LoRA: a frozen layer plus a learned low-rank change, y = W x + b + s B (A x) (Hu et al., 2021).";
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Lora(const Config& config, const Place& place);
  Merge merge() const override;
  const Parameter& a() const { return a_; }
  const Parameter& b() const { return b_; }
  double scale() const { return scale_; }  // alpha / rank

 protected:
  Tensor adapt(Context& ctx, Tensor x, Tensor y) override;

 private:
  double scale_, dropout_;
  const Parameter &a_, &b_;  // lora_a (rank, input), lora_b (output, rank); with experts (experts, ...)
};

// DoRA: the low-rank change gives the direction of the weight, and a learned magnitude its norm (Liu et al., 2024):
//   V = W + s B A,   y = g |W| / |V| (V x) + b,   |.| = norm of each row
// The paper's magnitude m is g |W|; g can be initialised to ones whatever W is. The gradient goes through |V| too. V
// itself is never computed: |V|^2 = |W|^2 + sum over r of b_r (2 s A W^T + s^2 A A^T b)_r, where b is the row of B.
class Dora : public Adapter {
 public:
  struct Config : ConfigOf<Config, LowRankConfig> {
    static constexpr std::string_view kName = "Dora";
    static constexpr std::string_view kAbout =
        "DoRA: a low-rank change of the weight's direction, and a learned magnitude per output (Liu et al., "
        "2024).";
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Dora(const Config& config, const Place& place);
  Merge merge() const override;

 protected:
  Tensor adapt(Context& ctx, Tensor x, Tensor y) override;

 private:
  double scale_, dropout_;
  const Parameter &a_, &b_, &magnitude_;  // as in Lora; dora_magnitude (output)
  const Parameter* bias_;                 // of the adapted layer; nullptr = it has none
};

}  // namespace meshloom::layers
