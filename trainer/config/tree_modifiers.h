// Edits of whatever a selection chooses: by class, by a pattern over paths, by a field's value. A selection
// that chooses nothing is an error. Paths are those of the recipe:
// "model.decoder.stack.layer.attention.q_proj".
#pragma once

#include <optional>
#include <string>

#include "layers/config/select.h"
#include "trainer/config/trainer_config.h"
#include "trainer/learner/parameter_group.h"

namespace meshloom::trainer {

// See layers::Selection. Field `class` is the class or the interface of a node's place.
struct SelectingModifier : ModifierConfig {
  layers::Selection selection;
  void fields(layers::FieldVisitor& v) override;
};

// One field of every chosen node.
struct SetWhere : layers::ConfigOf<SetWhere, SelectingModifier> {
  static constexpr std::string_view kName = "SetWhere";
  static constexpr std::string_view kAbout = "Sets one field of every chosen node.";
  layers::Required<std::string> field, value;
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// Every chosen node by another class: fields that both have, with one meaning, and `with` does not name are kept.
struct Replace : layers::ConfigOf<Replace, SelectingModifier> {
  static constexpr std::string_view kName = "Replace";
  static constexpr std::string_view kAbout = "Puts another class into the place of every chosen node.";
  layers::Required<std::string> with;  // "LayerNorm{eps=1e-6}"
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// Every Linear but the head, or whatever is chosen, in a form of fewer bits: Nf4Linear (layers/quantized/nf4_linear.h), ...
struct Quantize : layers::ConfigOf<Quantize, Replace> {
  static constexpr std::string_view kName = "Quantize";
  static constexpr std::string_view kAbout =
      "Puts a form of fewer bits into the place of every Linear but the head, or of what is chosen.";
  Quantize() {
    selection.of_class = "Linear";
    selection.except = "**.head.**";  // an adapter may be around it
    with = std::string("Nf4Linear{}");
  }
};

// `with` around every chosen node, which becomes its child `slot`.
struct Wrap : layers::ConfigOf<Wrap, SelectingModifier> {
  static constexpr std::string_view kName = "Wrap";
  static constexpr std::string_view kAbout = "Puts a class around every chosen node.";
  layers::Child<layers::Config> with;
  std::string slot = "base";
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// The adapter `with` (Lora, Dora, ...: layers/adapters/adapter.h) around every chosen layer, by default every Linear,
// and nothing but adapters learns.
struct Adapt : layers::ConfigOf<Adapt, SelectingModifier> {
  static constexpr std::string_view kName = "Adapt";
  static constexpr std::string_view kAbout =
      "Puts an adapter around every chosen layer; nothing but adapters learns.";
  layers::Child<layers::Config> with;
  Adapt() { selection.of_class = "Linear"; }
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// One more rule for the learner (learner.rules).
struct AddParameterGroup : layers::ConfigOf<AddParameterGroup, ModifierConfig> {
  static constexpr std::string_view kName = "AddParameterGroup";
  static constexpr std::string_view kAbout = "Adds a rule for some parameters to the learner.";
  ParameterGroup rule;  // its fields are this modifier's
  void fields(layers::FieldVisitor& v) override { rule.fields(v); }
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

void add_tree_modifier_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer
