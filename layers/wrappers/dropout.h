// Dropout around other layers, in training only. Which elements are dropped depends on the run's seed, the step, the
// path of the layer and the place in the batch, and on nothing else.
#pragma once

#include "layers/core/inference_config.h"
#include "layers/core/layer.h"
#include "layers/core/linear.h"
#include "layers/embedding/embedding.h"

namespace meshloom::layers {

// Dropout on the output of `base`, or on its input: Wrap{with=Dropout{rate=0.1} slot=base where="**.attention"}.
class Dropout : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, TrainingOnly {
    static constexpr std::string_view kName = "Dropout";
    static constexpr std::string_view kAbout =
        "Dropout on the output of a layer, or on its input (Srivastava et al., 2014).";
    Child<Layer::Config> base = Linear::Config{};
    double rate = 0.1;
    bool input =
        false;  // whether it is on the input; around a decoder's stack that is the embeddings, with positions

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer inside.", means("layer inside a wrapper")});
      v("rate", rate, {"The probability that an element becomes 0 in training.", below_one()});
      v("input", input, {"Whether dropout is applied to the layer's input instead of its output."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> inference_config() const override { return base->clone(); }
  };

  Dropout(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Layer* base_;
  double rate_;
  bool input_;
};

// Dropout on the vectors of an embedding; a tied head uses the embedding without dropout.
class DropoutEmbedding : public TokenEmbedding {
 public:
  struct Config : ConfigOf<Config, TokenEmbedding::Config>, TrainingOnly {
    static constexpr std::string_view kName = "DropoutEmbedding";
    static constexpr std::string_view kAbout =
        "Dropout on the vectors of an embedding; a tied head uses the embedding without dropout.";
    Child<TokenEmbedding::Config> base = Embedding::Config{};
    double rate = 0.1;

    void fields(FieldVisitor& v) override {
      v("base", base, {"The embedding inside.", means("embedding inside a wrapper")});
      v("rate", rate, {"The probability that an element becomes 0 in training.", below_one()});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> inference_config() const override { return base->clone(); }
  };

  DropoutEmbedding(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor ids) override;
  Tensor attend(Context& ctx, Tensor x) override;

 private:
  TokenEmbedding* base_;
  double rate_;
};

// Stochastic depth (Huang et al., 2016): the output of `base` becomes 0 for each row of the batch with probability
// `rate`, and is divided by 1 - rate for the other rows. Around the attention and the feed-forward of a residual layer
// it skips their branches. If it `grows`, as in the paper, layer l of L, counted from 1, has the rate l / L x `rate`.
class StochasticDepth : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, TrainingOnly {
    static constexpr std::string_view kName = "StochasticDepth";
    static constexpr std::string_view kAbout =
        "Stochastic depth: a layer's output becomes 0 for some rows in training (Huang et al., 2016).";
    Child<Layer::Config> base = Linear::Config{};
    double rate = 0.1;
    bool grows = false;

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer inside.", means("layer inside a wrapper")});
      v("rate", rate,
        {"The probability that the output for a row of the batch becomes 0 in training.", below_one()});
      v("grows", grows,
        {"Whether the rate rises linearly with depth, to `rate` in the last layer of the stack."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> inference_config() const override { return base->clone(); }
  };

  StochasticDepth(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Layer* base_;
  double rate_;
};

}  // namespace meshloom::layers
