// Regularisers of a router, which balance the load of experts.
#pragma once

#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

class RouterRegularizer : public Module {
 public:
  struct Dims {
    std::int64_t experts = 0;
  };
  struct Config : Module::Config {
    static constexpr std::string_view kAbout = "Keeps a router from sending most tokens to the same experts.";
    using Built = RouterRegularizer;
    using Dims = RouterRegularizer::Dims;
    Dims dims;
  };
  struct Routing {
    Tensor logits;         // (N, E)
    Tensor probabilities;  // (N, E): scores divided by their sum, for each token
    Tensor load;           // (E): how often each expert was chosen, before any capacity; it has no gradient
    std::int64_t k;
    Tensor mask = {};   // (N): 1 for a token, 0 for padding; an empty tensor = every row is a token
    Tensor count = {};  // (1): the number of tokens, if there is a mask
    std::int64_t experts() const { return load.dim(0); }
    // k / experts: how often a token chooses an expert on average.
    double choices() const { return static_cast<double>(k) / static_cast<double>(experts()); }
    // The sum over tokens: (N) -> (1), or (N, E) -> (E).
    Tensor sum(Tensor rows) const;
    // factor x / tokens^power, or factor x if there are no tokens.
    Tensor per_token(Tensor x, double factor = 1, int power = 1) const;
  };

  using Module::Module;
  // Called before the choice. Returns a bias (E) that is added to the scores for the choice but not for the weights, or
  // an empty tensor.
  virtual Tensor bias(Context&) { return {}; }
  // Called after the choice, in training: leaves auxiliary losses, summaries and updates of state.
  virtual void observe(Context& ctx, const Routing& routing) = 0;
};

// The load balancing loss: weight x E / k x sum over e of (load_e / N) mean_n(probability_ne), which is `weight` if the
// load is even (Shazeer et al., 2017; Fedus et al., 2022). It is no sum over tokens: of a step in micro-batches
// each has its own, so that accumulation changes more than rounding.
class LoadBalancingLoss : public RouterRegularizer {
 public:
  struct Config : ConfigOf<Config, RouterRegularizer::Config> {
    static constexpr std::string_view kName = "LoadBalancingLoss";
    static constexpr std::string_view kAbout =
        "A loss that is smallest if all experts get equally many tokens (Shazeer et al., 2017; Fedus et al., "
        "2022).";
    double weight = 0.01;

    void fields(FieldVisitor& v) override {
      v("weight", weight, {"Factor on the loss, which is 1 if all experts get equally many tokens."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  LoadBalancingLoss(const Config& config, const Place& place)
      : RouterRegularizer(place), weight_(config.weight) {}
  void observe(Context& ctx, const Routing& routing) override;

 private:
  double weight_;
};

// The router z-loss: weight x mean_n(log sum exp(logits_n)^2), which keeps logits small (Zoph et al., 2022).
class RouterZLoss : public RouterRegularizer {
 public:
  struct Config : ConfigOf<Config, RouterRegularizer::Config> {
    static constexpr std::string_view kName = "RouterZLoss";
    static constexpr std::string_view kAbout =
        "The router z-loss, which keeps the router's logits small (Zoph et al., 2022).";
    double weight = 1e-3;

    void fields(FieldVisitor& v) override {
      v("weight", weight,
        {"Factor on the mean over tokens of the squared log-sum-exp of the router's logits."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  RouterZLoss(const Config& config, const Place& place) : RouterRegularizer(place), weight_(config.weight) {}
  void observe(Context& ctx, const Routing& routing) override;

 private:
  double weight_;
};

// Auxiliary-loss-free load balancing: a bias per expert, which is a state, moves by `rate` in every step towards an
// even load (Wang et al., 2024; DeepSeek-V3, 2024).
class LossFreeBalancing : public RouterRegularizer {
 public:
  struct Config : ConfigOf<Config, RouterRegularizer::Config> {
    static constexpr std::string_view kName = "LossFreeBalancing";
    static constexpr std::string_view kAbout =
        "Load balancing without a loss: a bias per expert that moves towards an even load (Wang et al., "
        "2024).";
    double rate = 1e-3;

    void fields(FieldVisitor& v) override {
      v("rate", rate, {"How far an expert's bias moves per step towards an even load."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  LossFreeBalancing(const Config& config, const Place& place);
  Tensor bias(Context& ctx) override { return ctx.state(bias_); }
  void observe(Context& ctx, const Routing& routing) override;

 private:
  double rate_;
  const State& bias_;  // (experts)
};

}  // namespace meshloom::layers
