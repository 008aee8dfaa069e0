// Tokens to scores of the next token.
#pragma once

#include "layers/block/backbone.h"
#include "layers/embedding/head.h"

namespace meshloom::layers {

class Decoder : public Trunk {
 public:
  struct Config : ConfigOf<Config, Trunk::Config> {
    static constexpr std::string_view kName = "Decoder";
    static constexpr std::string_view kAbout = "Tokens to scores of the next token.";
    using Built = Decoder;

    Child<Layer::Config> head = TiedHead::Config{};

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Decoder(const Config& config, const Place& place);
  // tokens (B, S) i32 -> logits (B * S, vocab)
  Tensor forward(Context& ctx, Tensor tokens) { return scores(ctx, features(ctx, tokens)); }
  Tensor operator()(Context& caller, Tensor tokens) {
    Context ctx = caller.child(name());
    return forward(ctx, tokens);
  }
  // The same in two steps: what the head takes, (B * S, dim), and the scores of some of its rows, in the caller's context.
  Tensor hidden(Context& caller, Tensor tokens) {
    Context ctx = caller.child(name());
    return features(ctx, tokens);
  }
  Tensor scores(Context& caller, Tensor rows) { return (*head_)(caller, rows); }

 private:
  Layer* head_;
};

}  // namespace meshloom::layers
