// Modifiers that edit selected nodes of a recipe: nodes are selected by class, by a pattern over their paths,
// or by the value of a field. A selection that matches nothing is an error. Paths are those of the recipe,
// such as "model.decoder.stack.layer.attention.q_proj".
#pragma once

#include <optional>
#include <string>

#include "layers/config/select.h"
#include "trainer/config/trainer_config.h"
#include "trainer/learner/learner.h"

namespace meshloom::trainer {

// See layers::Selection. The field `class` names a node's class or the interface of its place.
struct SelectingModifier : ModifierConfig {
  layers::Selection selection;
  void fields(layers::FieldVisitor& v) override;
};

// Sets one field of every selected node.
struct SetWhere : layers::ConfigOf<SetWhere, SelectingModifier> {
  static constexpr std::string_view kName = "SetWhere";
  static constexpr std::string_view kAbout = "Sets one field of every selected node.";
  layers::Required<std::string> field, value;
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// Replaces every selected node by another class. Fields that both classes have with the same meaning are
// kept, unless `with` sets them.
struct Replace : layers::ConfigOf<Replace, SelectingModifier> {
  static constexpr std::string_view kName = "Replace";
  static constexpr std::string_view kAbout = "Replaces every selected node by another class.";
  layers::Required<std::string> with;  // "LayerNorm{eps=1e-6}"
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// Replaces every Linear but the head, or the selected nodes, by a quantized class, such as Nf4Linear
// (layers/quantized/nf4_linear.h).
struct Quantize : layers::ConfigOf<Quantize, Replace> {
  static constexpr std::string_view kName = "Quantize";
  static constexpr std::string_view kAbout =
      "Replaces every Linear but the head, or the selected nodes, by a quantized class.";
  Quantize() {
    selection.of_class = "Linear";
    selection.except = "**.head.**";  // an adapter may be around it
    with = std::string("Nf4Linear{}");
  }
};

// Wraps every selected node in `with`, whose child `slot` it becomes.
struct Wrap : layers::ConfigOf<Wrap, SelectingModifier> {
  static constexpr std::string_view kName = "Wrap";
  static constexpr std::string_view kAbout = "Wraps every selected node in a class.";
  layers::Child<layers::Config> with;
  std::string slot = "base";
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// Wraps every selected layer, by default every Linear, in the adapter `with` (layers/adapters/adapter.h:
// Lora, Dora, ...). Only the adapters are trained.
struct Adapt : layers::ConfigOf<Adapt, SelectingModifier> {
  static constexpr std::string_view kName = "Adapt";
  static constexpr std::string_view kAbout =
      "Wraps every selected layer in an adapter; only the adapters are trained.";
  layers::Child<layers::Config> with;
  Adapt() { selection.of_class = "Linear"; }
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// Appends a parameter group to learner.parameter_groups.
struct AddParameterGroup : layers::ConfigOf<AddParameterGroup, ModifierConfig> {
  static constexpr std::string_view kName = "AddParameterGroup";
  static constexpr std::string_view kAbout = "Appends a parameter group to the learner.";
  ParameterGroup group;  // its fields are the fields of this modifier
  void fields(layers::FieldVisitor& v) override { group.fields(v); }
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

void add_tree_modifier_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer
