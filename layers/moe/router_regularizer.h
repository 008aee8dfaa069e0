// What keeps a router from sending every token to the same experts.
#pragma once

#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

// The interface.
class RouterRegularizer : public Module {
 public:
  struct Dims {
    std::int64_t experts = 0;
  };
  struct Config : Module::Config {
    static constexpr std::string_view kAbout =
        "What keeps a router from sending every token to the same experts.";
    using Built = RouterRegularizer;
    using Dims = RouterRegularizer::Dims;
    Dims dims;
  };
  struct Routing {
    Tensor logits;         // (N, E)
    Tensor probabilities;  // (N, E): scores, each token's divided by their sum
    Tensor load;           // (E): how many choices each expert got, before any is dropped. Without a gradient
    std::int64_t k;
    Tensor mask = {};   // (N): 1 for a token, 0 for padding; no tensor = every row is a token
    Tensor count = {};  // (1): how many tokens, where there is a mask
    std::int64_t experts() const { return load.dim(0); }
    double choices() const {
      return static_cast<double>(k) / static_cast<double>(experts());
    }  // per token and expert
    // Sums over tokens: (N) -> (1), and (N, E) -> (E).
    Tensor sum(Tensor rows) const;
    // factor x / tokens^power; where there are none, factor x.
    Tensor per_token(Tensor x, double factor = 1, int power = 1) const;
  };

  using Module::Module;
  // Before the choice: (E), added to the scores that decide it but not to the weights; or no tensor.
  virtual Tensor bias(Context&) { return {}; }
  // After it, in training: leaves auxiliary losses, summaries, updates of state.
  virtual void observe(Context& ctx, const Routing& routing) = 0;
};

// weight E / k sum over e of (load_e / N) mean_n(probability_ne): 1 times the weight when all is even (Shazeer et al.,
// 2017; Fedus et al., 2022).
class LoadBalance : public RouterRegularizer {
 public:
  struct Config : ConfigOf<Config, RouterRegularizer::Config> {
    static constexpr std::string_view kName = "LoadBalance";
    static constexpr std::string_view kAbout =
        "A loss that is least when all experts get as many tokens (Shazeer et al., 2017; Fedus et al., "
        "2022).";
    double weight = 0.01;

    void fields(FieldVisitor& v) override {
      v("weight", weight, {"Factor on the loss, which is 1 when all experts get as many tokens."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  LoadBalance(const Config& config, const Place& place) : RouterRegularizer(place), weight_(config.weight) {}
  void observe(Context& ctx, const Routing& routing) override;

 private:
  double weight_;
};

// weight mean_n(log sum exp(logits_n)^2): keeps logits small (Zoph et al., 2022).
class RouterZ : public RouterRegularizer {
 public:
  struct Config : ConfigOf<Config, RouterRegularizer::Config> {
    static constexpr std::string_view kName = "RouterZ";
    static constexpr std::string_view kAbout =
        "A loss that keeps the router's logits small (Zoph et al., 2022).";
    double weight = 1e-3;

    void fields(FieldVisitor& v) override {
      v("weight", weight,
        {"Factor on the mean over tokens of the squared log-sum-exp of the router's logits."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  RouterZ(const Config& config, const Place& place) : RouterRegularizer(place), weight_(config.weight) {}
  void observe(Context& ctx, const Routing& routing) override;

 private:
  double weight_;
};

// A bias per expert, a state, that moves by `rate` with every batch towards an even load: no loss (Wang et al., 2024;
// DeepSeek-V3, 2024).
class BiasBalance : public RouterRegularizer {
 public:
  struct Config : ConfigOf<Config, RouterRegularizer::Config> {
    static constexpr std::string_view kName = "BiasBalance";
    static constexpr std::string_view kAbout =
        "A bias per expert in the choice that moves towards an even load, without a loss (Wang et al., "
        "2024).";
    double rate = 1e-3;

    void fields(FieldVisitor& v) override {
      v("rate", rate, {"How far an expert's bias moves per step towards an even load."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  BiasBalance(const Config& config, const Place& place);
  Tensor bias(Context& ctx) override { return ctx.state(bias_); }
  void observe(Context& ctx, const Routing& routing) override;

 private:
  double rate_;
  const State& bias_;  // (experts)
};

}  // namespace meshloom::layers
