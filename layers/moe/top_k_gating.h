// Top-k gating: each token goes to the k experts with the highest scores.
#pragma once

#include "layers/core/linear.h"
#include "layers/moe/gating.h"
#include "layers/moe/router_regularizer.h"
#include "layers/moe/score.h"

namespace meshloom::layers {

// The capacity of an expert: it processes at most max(min, floor(factor x k x tokens / experts)) tokens of a sequence,
// so that a factor of 1 is enough for an even load. First choices have priority over second choices, then earlier
// tokens over later ones. A token beyond the capacity is dropped: it goes without that expert (Lepikhin et al., 2021).
struct Capacity : ConfigOf<Capacity, Config> {
  static constexpr std::string_view kName = "Capacity";
  static constexpr std::string_view kAbout =
      "The largest number of tokens of a sequence that an expert processes (Lepikhin et al., 2021).";
  double factor = 1.25;
  std::int64_t min = 1;

  void fields(FieldVisitor& v) override {
    v("factor", factor, {"The capacity of an expert as a multiple of an even load.", above(0)});
    v("min", min, {"The smallest capacity of an expert, in tokens.", at_least(1), formerly("least")});
  }
};

class TopK : public Gating {
 public:
  struct Config : ConfigOf<Config, Gating::Config> {
    static constexpr std::string_view kName = "TopK";
    static constexpr std::string_view kAbout =
        "Each token goes to the k experts to which a router gives the highest scores.";
    std::int64_t k = 2;
    Child<Layer::Config> router = Linear::Config{};  // to a logit per expert
    Child<Score> score = SoftmaxScore{};
    // Whether the weights of the chosen experts are divided by their sum, before any is dropped. With k = 1 the weight
    // is always 1 then and the router gets no gradient but that of regularizers, which must be empty.
    bool normalize = true;
    double weight_scale = 1;   // factor on the weights
    Child<Capacity> capacity;  // none = no token is dropped
    std::vector<Child<RouterRegularizer::Config>> regularizers = default_regularizers();

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;

   private:
    static std::vector<Child<RouterRegularizer::Config>> default_regularizers() {
      return {LoadBalancingLoss::Config{}};
    }
  };

  TopK(const Config& config, const Place& place);
  // For a capacity, the sequences are those of Tokens; without Tokens, x is one sequence. Padding goes to no expert and
  // does not count in any statistic.
  Choice forward(Context& ctx, Tensor x) override;

 private:
  using Routing = RouterRegularizer::Routing;

  // For each row the columns of the k largest elements; for padding, columns that are no experts.
  Tensor choose(Tensor ranking, Tensor mask) const;
  Tensor limit(Context& ctx, Tensor ids, const Routing& routing);
  void observe(Context& ctx, const Routing& routing);

  std::int64_t k_, experts_;
  Child<Score> score_;
  bool normalize_;
  double weight_scale_;
  Child<Capacity> capacity_;
  Layer* router_;
  std::vector<RouterRegularizer*> regularizers_;
};

}  // namespace meshloom::layers
