// Around other layers, in training only: parts of what they give, or take, set to zero at random. Which parts
// depends on the run's seed, the step, the path of the layer and the place in the batch, and on nothing else.
#pragma once

#include "layers/core/inference_config.h"
#include "layers/core/layer.h"
#include "layers/core/linear.h"
#include "layers/embedding/embedding.h"

namespace meshloom::layers {

// Elements of what `base` gives, or of what it takes: Wrap{with=Dropout{rate=0.1} slot=base
// where="**.attention"}.
class Dropout : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, ForTraining {
    static constexpr std::string_view kName = "Dropout";
    static constexpr std::string_view kAbout =
        "Elements of what a layer gives, or takes, become 0 in training (Srivastava et al., 2014).";
    Child<Layer::Config> base = Linear::Config{};
    double rate = 0.1;
    bool input =
        false;  // of what base takes; around a decoder's stack that is the embeddings, positions included

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer that it stands around.", means("layer inside a wrapper")});
      v("rate", rate, {"The part of the elements that become 0 in training.", below_one()});
      v("input", input, {"Whether elements of what the layer takes are dropped, instead of what it gives."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> in_use() const override { return base->clone(); }
  };

  Dropout(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Layer* base_;
  double rate_;
  bool input_;
};

// Elements of the rows that an embedding gives; a tied head sees them whole.
class DropoutEmbedding : public TokenEmbedding {
 public:
  struct Config : ConfigOf<Config, TokenEmbedding::Config>, ForTraining {
    static constexpr std::string_view kName = "DropoutEmbedding";
    static constexpr std::string_view kAbout =
        "Elements of the vectors that an embedding gives become 0 in training; a tied head sees them whole.";
    Child<TokenEmbedding::Config> base = Embedding::Config{};
    double rate = 0.1;

    void fields(FieldVisitor& v) override {
      v("base", base, {"The embedding that it stands around.", means("embedding inside a wrapper")});
      v("rate", rate, {"The part of the elements that become 0 in training.", below_one()});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> in_use() const override { return base->clone(); }
  };

  DropoutEmbedding(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor ids) override;
  Tensor attend(Context& ctx, Tensor x) override;

 private:
  TokenEmbedding* base_;
  double rate_;
};

// Stochastic depth (Huang et al., 2016): of `rate` of the batch's rows everything `base` gives becomes 0, and
// larger by as much for the others. Around the attention and the feed-forward of any residual layer it skips
// their branches. Where it `grows`, as in the paper, that is the rate in the last layer of the stack, and l /
// L of it in layer l of L, counted from 1.
class StochasticDepth : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, ForTraining {
    static constexpr std::string_view kName = "StochasticDepth";
    static constexpr std::string_view kAbout =
        "What a layer gives becomes 0 for some rows of the batch in training (Huang et al., 2016).";
    Child<Layer::Config> base = Linear::Config{};
    double rate = 0.1;
    bool grows = false;

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer that it stands around.", means("layer inside a wrapper")});
      v("rate", rate, {"The part of the batch's rows for which the layer gives 0 in training.", below_one()});
      v("grows", grows,
        {"Whether the rate rises linearly with depth, to `rate` in the last layer of the stack."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> in_use() const override { return base->clone(); }
  };

  StochasticDepth(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Layer* base_;
  double rate_;
};

}  // namespace meshloom::layers
