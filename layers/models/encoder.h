// The encoder of an encoder-decoder model: the tokens of a source to hidden states.
#pragma once

#include "layers/block/backbone.h"

namespace meshloom::layers {

// By default the mask of its attentions is Full, so that they attend to both sides.
class Encoder : public Backbone {
 public:
  struct Config : ConfigOf<Config, Backbone::Config> {
    static constexpr std::string_view kName = "Encoder";
    static constexpr std::string_view kAbout =
        "A map from the tokens of a source to hidden states, by default with attention to both sides.";
    using Built = Encoder;

    Config();
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  using Backbone::Backbone;
};

}  // namespace meshloom::layers
