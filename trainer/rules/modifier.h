// Edits that a mesh rule makes to a recipe. Each is a config, so that rules are data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "trainer/rules/trainer_config.h"

namespace meshloom::trainer {

// The device: BACKEND or BACKEND:INDEX.
struct SetBackend : layers::ConfigOf<SetBackend, ModifierConfig> {
  static constexpr std::string_view kName = "SetBackend";
  layers::Required<std::string> backend;
  void fields(layers::FieldVisitor& v) override { v("backend", backend); }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// What the device runs as; "" = itself.
struct SetProfile : layers::ConfigOf<SetProfile, ModifierConfig> {
  static constexpr std::string_view kName = "SetProfile";
  layers::Required<std::string> profile;
  void fields(layers::FieldVisitor& v) override { v("profile", profile); }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// The whole mesh shape.
struct SetMesh : layers::ConfigOf<SetMesh, ModifierConfig> {
  static constexpr std::string_view kName = "SetMesh";
  layers::Child<MeshConfig> mesh = MeshConfig{};
  void fields(layers::FieldVisitor& v) override { v("mesh", mesh); }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

struct SetDType : layers::ConfigOf<SetDType, ModifierConfig> {
  static constexpr std::string_view kName = "SetDType";
  layers::Required<std::string> dtype;
  void fields(layers::FieldVisitor& v) override { v("dtype", dtype); }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// All remat rules at once.
struct SetRemat : layers::ConfigOf<SetRemat, ModifierConfig> {
  static constexpr std::string_view kName = "SetRemat";
  std::vector<layers::Child<RematRuleConfig>> rules;
  void fields(layers::FieldVisitor& v) override { v("rules", rules); }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

struct SetAccumulation : layers::ConfigOf<SetAccumulation, ModifierConfig> {
  static constexpr std::string_view kName = "SetAccumulation";
  layers::Required<std::int64_t> accumulation;
  void fields(layers::FieldVisitor& v) override { v("accumulation", accumulation); }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// Adds a kernel rule, or changes the variant of the one for the same calls.
struct SetKernel : layers::ConfigOf<SetKernel, ModifierConfig> {
  static constexpr std::string_view kName = "SetKernel";
  std::string op = ".*", path = ".*";
  layers::Required<std::string> variant;
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// Any field of the tree.
struct SetField : layers::ConfigOf<SetField, ModifierConfig> {
  static constexpr std::string_view kName = "SetField";
  layers::Required<std::string> path, value;
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// Several, in order.
struct Chain : layers::ConfigOf<Chain, ModifierConfig> {
  static constexpr std::string_view kName = "Chain";
  std::vector<layers::Child<ModifierConfig>> modifiers;
  void fields(layers::FieldVisitor& v) override { v("modifiers", modifiers); }
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

void add_modifier_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer
