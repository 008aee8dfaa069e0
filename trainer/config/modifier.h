// Modifiers: the edits that a mesh rule makes to a recipe. Each is a config, so that rules are data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

// The device: BACKEND or BACKEND:INDEX.
struct SetBackend : layers::ConfigOf<SetBackend, ModifierConfig> {
  static constexpr std::string_view kName = "SetBackend";
  static constexpr std::string_view kAbout = "Sets the device.";
  layers::Required<std::string> backend;
  void fields(layers::FieldVisitor& v) override {
    v("backend", backend, {"The device, BACKEND or BACKEND:INDEX."});
  }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// The profile that the device runs as; "" = its own.
struct SetProfile : layers::ConfigOf<SetProfile, ModifierConfig> {
  static constexpr std::string_view kName = "SetProfile";
  static constexpr std::string_view kAbout = "Sets the profile that the device runs as.";
  layers::Required<std::string> profile;
  void fields(layers::FieldVisitor& v) override {
    v("profile", profile,
      {"The profile that the device runs as; \"\": its own.", layers::means("profile of a run")});
  }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// The whole mesh shape.
struct SetMesh : layers::ConfigOf<SetMesh, ModifierConfig> {
  static constexpr std::string_view kName = "SetMesh";
  static constexpr std::string_view kAbout = "Sets the whole mesh.";
  layers::Child<MeshConfig> mesh = MeshConfig{};
  void fields(layers::FieldVisitor& v) override {
    v("mesh", mesh, {"How many ranks each axis of the mesh has.", layers::means("mesh of a run")});
  }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

struct SetDType : layers::ConfigOf<SetDType, ModifierConfig> {
  static constexpr std::string_view kName = "SetDType";
  static constexpr std::string_view kAbout = "Sets the dtype of activations.";
  layers::Required<std::string> dtype;
  void fields(layers::FieldVisitor& v) override {
    v("dtype", dtype,
      {"The dtype of activations.", layers::one_of("f32", "bf16", "f16"),
       layers::means("dtype of activations")});
  }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// All remat rules at once.
struct SetRemat : layers::ConfigOf<SetRemat, ModifierConfig> {
  static constexpr std::string_view kName = "SetRemat";
  static constexpr std::string_view kAbout = "Sets all remat rules at once.";
  std::vector<layers::Child<RematRuleConfig>> rules;
  void fields(layers::FieldVisitor& v) override {
    v("rules", rules, {"All remat rules at once; the first that matches wins."});
  }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

struct SetAccumulation : layers::ConfigOf<SetAccumulation, ModifierConfig> {
  static constexpr std::string_view kName = "SetAccumulation";
  static constexpr std::string_view kAbout = "Sets the number of micro-batches of a step.";
  layers::Required<std::int64_t> accumulation;
  void fields(layers::FieldVisitor& v) override {
    v("accumulation", accumulation,
      {"Micro-batches of one step.", layers::at_least(1), layers::means("micro-batches of a step")});
  }
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// Adds a kernel rule, or changes the variant and the parameters of the one for the same calls.
struct SetKernel : layers::ConfigOf<SetKernel, ModifierConfig> {
  static constexpr std::string_view kName = "SetKernel";
  static constexpr std::string_view kAbout =
      "Adds a kernel rule, or changes the variant of the one for the same calls.";
  std::string op = "**", path = "**";
  layers::Required<std::string> variant;
  std::vector<std::string> params;
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// Asks for a choice of micro-batches, remat and chunks of the loss with which the run fits into the memory: see
// trainer/rules/fit.h.
struct Fit : layers::ConfigOf<Fit, ModifierConfig> {
  static constexpr std::string_view kName = "Fit";
  static constexpr std::string_view kAbout =
      "Lets the run choose micro-batches, remat and chunks of the loss so that it fits into the memory.";
  void fields(layers::FieldVisitor&) override {}
  void apply(TrainerConfig& config, const layers::ClassTable&) const override;
};

// Sets any one field of the recipe.
struct SetField : layers::ConfigOf<SetField, ModifierConfig> {
  static constexpr std::string_view kName = "SetField";
  static constexpr std::string_view kAbout = "Sets any one field of the recipe.";
  layers::Required<std::string> path, value;
  void fields(layers::FieldVisitor& v) override;
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// Applies several modifiers, in order.
struct Chain : layers::ConfigOf<Chain, ModifierConfig> {
  static constexpr std::string_view kName = "Chain";
  static constexpr std::string_view kAbout = "Applies several modifiers, in order.";
  std::vector<layers::Child<ModifierConfig>> modifiers;
  void fields(layers::FieldVisitor& v) override { v("modifiers", modifiers, {"The modifiers, in order."}); }
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

void add_modifier_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer
