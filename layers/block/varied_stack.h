// A stack whose layers differ: some of them have another class in some place.
#pragma once

#include <string>
#include <vector>

#include "layers/block/transformer.h"

namespace meshloom::layers {

// `with` stands in the places `where` of some of the layers: every `every`-th from `first` on, or, where
// there are any, those that `layers` names; counted from 0. The stack's `layer` is what all others are.
struct LayerOverride : ConfigOf<LayerOverride, Config> {
  static constexpr std::string_view kName = "LayerOverride";
  static constexpr std::string_view kAbout = "Another class in some place of some of the layers.";
  Required<std::string>
      where;  // pattern over paths below the layer, "attention.mask"; must match one or more
  Child<Config> with;
  std::int64_t first = 0, every = 1;
  std::vector<std::int64_t> layers;

  void fields(FieldVisitor& v) override;
  bool takes(std::int64_t layer) const;
};

// VariedStack{num_layers=26 layer=... overrides=[LayerOverride{where=attention.mask with=Causal{} first=1
// every=2}]}; of two overrides for the same place of a layer the later counts.
class VariedStack : public Stack {
 public:
  struct Config : ConfigOf<Config, Stack::Config> {
    static constexpr std::string_view kName = "VariedStack";
    static constexpr std::string_view kAbout =
        "Layers one after another, of which some have another class in some place.";
    std::vector<Child<LayerOverride>> overrides;

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
    Child<Layer::Config> layer_at(std::int64_t index) const override;
  };

  VariedStack(const Config& config, const Place& place);
  // Gives NewestKeys to its layers.
  Tensor forward(Context& ctx, Tensor x) override;
};

}  // namespace meshloom::layers
