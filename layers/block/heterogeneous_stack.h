// A stack in which some layers differ from the others in some of their nodes.
#pragma once

#include <string>
#include <vector>

#include "layers/block/transformer.h"

namespace meshloom::layers {

// Replaces the nodes at `where` by `with` in some of the layers, which are counted from 0: in those that `layers`
// lists, or, if it is empty, in every `every`-th layer starting with `first`.
struct LayerOverride : ConfigOf<LayerOverride, Config> {
  static constexpr std::string_view kName = "LayerOverride";
  static constexpr std::string_view kAbout = "Replaces some nodes in some of the layers of a stack.";
  Required<std::string>
      where;  // pattern (glob.h) over the paths below a layer, "attention.mask"; must match some
  Child<Config> with;
  std::int64_t first = 0, every = 1;
  std::vector<std::int64_t> layers;

  void fields(FieldVisitor& v) override;
  bool applies_to(std::int64_t layer) const;
};

//   HeterogeneousStack{num_layers=26 layer=... overrides=[LayerOverride{where=attention.mask with=Causal{} every=2}]}
//
// Overrides are applied in their order, so that the last one for a node of a layer counts.
class HeterogeneousStack : public Stack {
 public:
  struct Config : ConfigOf<Config, Stack::Config> {
    static constexpr std::string_view kName = "HeterogeneousStack";
    static constexpr std::string_view kAbout =
        "A number of layers, one after another, of which some differ in some of their nodes.";
    std::vector<Child<LayerOverride>> overrides;

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
    Child<Layer::Config> layer_at(std::int64_t index) const override;
  };

  HeterogeneousStack(const Config& config, const Place& place);
  // Puts SharedKV for its layers.
  Tensor forward(Context& ctx, Tensor x) override;
};

}  // namespace meshloom::layers
