// The k experts that a router scores highest.
#pragma once

#include "layers/core/linear.h"
#include "layers/moe/gating.h"
#include "layers/moe/router_regularizer.h"
#include "layers/moe/score.h"

namespace meshloom::layers {

// Most choices of one expert among the tokens of one sequence: max(least, floor(factor k tokens / experts)), so that a
// factor of 1 has room for an even load and no more. First choices go before second ones, then earlier tokens; what is
// beyond is dropped, and the token goes without that expert (Lepikhin et al., 2021).
struct Capacity : ConfigOf<Capacity, Config> {
  static constexpr std::string_view kName = "Capacity";
  static constexpr std::string_view kAbout =
      "How many tokens of a sequence an expert takes at most (Lepikhin et al., 2021).";
  double factor = 1.25;
  std::int64_t least = 1;

  void fields(FieldVisitor& v) override {
    v("factor", factor, {"The capacity of an expert as a multiple of an even load.", above(0)});
    v("least", least, {"The least capacity of an expert, in tokens.", at_least(1)});
  }
};

class TopK : public Gating {
 public:
  struct Config : ConfigOf<Config, Gating::Config> {
    static constexpr std::string_view kName = "TopK";
    static constexpr std::string_view kAbout = "The k experts that a router scores highest.";
    std::int64_t k = 2;
    Child<Layer::Config> router = Linear::Config{};  // to a logit per expert
    Child<Score> score = SoftmaxScore{};
    // Chosen scores are divided by their sum; before capacity drops any. Of a single one that makes 1,
    // whatever the router says: then regularizers, which would teach it alone, must be empty.
    bool normalize = true;
    double weight_scale = 1;   // then multiplied by this
    Child<Capacity> capacity;  // none = nothing is dropped
    std::vector<Child<RouterRegularizer::Config>> regularizers = default_regularizers();

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;

   private:
    static std::vector<Child<RouterRegularizer::Config>> default_regularizers() {
      return {LoadBalance::Config{}};
    }
  };

  TopK(const Config& config, const Place& place);
  // With a capacity: a sequence is that of Tokens, where there are any, else all of x.
  // Rows of padding go to no expert, and count nowhere.
  Choice forward(Context& ctx, Tensor x) override;

 private:
  using Routing = RouterRegularizer::Routing;

  // Of each row the k largest; of padding columns that are no experts.
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
