// Tokens to the logits of the next token.
#pragma once

#include "kernels/embedding/embedding.h"
#include "layers/block/backbone.h"
#include "layers/core/inference_step.h"
#include "layers/embedding/head.h"

namespace meshloom::layers {

class Decoder : public Backbone {
 public:
  struct Config : ConfigOf<Config, Backbone::Config> {
    static constexpr std::string_view kName = "Decoder";
    static constexpr std::string_view kAbout = "A map from tokens to the logits of the next token.";
    using Built = Decoder;

    Child<Layer::Config> head = TiedHead::Config{};

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Decoder(const Config& config, const Place& place);
  // tokens (B, S) i32 -> logits (B * S, vocab)
  Tensor forward(Context& ctx, Tensor tokens) { return logits(ctx, features(ctx, tokens)); }
  Tensor operator()(Context& caller, Tensor tokens) {
    Context ctx = caller.child(name());
    return forward(ctx, tokens);
  }
  // The logits of some tokens only, whose indices are `rows` (L) i32 -> (L, vocab). The hidden states (B * S, dim) of all tokens
  // are the output "hidden_states" of the call.
  Tensor forward(Context& caller, Tensor tokens, Tensor rows) {
    Context ctx = caller.child(name());
    const Tensor hidden_states = features(ctx, tokens);
    ctx.output("hidden_states", hidden_states);
    const Tensor selected = kernels::embedding(hidden_states, rows);
    ctx.put(SelectedTokens{rows});
    return logits(ctx, selected);
  }
  // forward() in two steps: first the hidden states (B * S, dim), then the logits of some of their rows, whose call is
  // in the context `caller`.
  Tensor hidden_states(Context& caller, Tensor tokens) {
    Context ctx = caller.child(name());
    return features(ctx, tokens);
  }
  Tensor logits(Context& caller, Tensor rows) { return (*head_)(caller, rows); }

 private:
  Layer* head_;
};

}  // namespace meshloom::layers
