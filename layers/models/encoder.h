// A source's tokens to what a decoder looks at.
#pragma once

#include "layers/block/backbone.h"

namespace meshloom::layers {

// Its layers see both sides: the mask of a new one is Full.
class Encoder : public Trunk {
 public:
  struct Config : ConfigOf<Config, Trunk::Config> {
    static constexpr std::string_view kName = "Encoder";
    static constexpr std::string_view kAbout =
        "A source's tokens to what a decoder looks at; a new one's layers see both sides.";
    using Built = Encoder;

    Config();
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  using Trunk::Trunk;
};

}  // namespace meshloom::layers
