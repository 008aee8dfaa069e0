// Modifiers that make a mesh of the devices that the hardware's name counts ("null-tpu-v5p-1024": 1024).
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

// One that makes a mesh of all devices, and is left out where these are not the ranks of the run.
struct MeshModifier : ModifierConfig {};

// For devices in nodes (or slices) with fast links inside. Where a step has fewer rows than there are ranks, the axis model
// takes what is left, as the least power of two.
struct MeshOfNodes : layers::ConfigOf<MeshOfNodes, MeshModifier> {
  static constexpr std::string_view kName = "MeshOfNodes";
  static constexpr std::string_view kAbout =
      "Divides the devices of the hardware's name over axes of the mesh, inside and between nodes.";
  std::int64_t node = 0, max_model = 1;
  std::string inside = "fsdp", between = "data";
  void fields(layers::FieldVisitor& v) override;
  // Throws Error where the devices are no multiple of a node.
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// For boxes of one device each, over a slow network: rows are divided where only adapters are trained, or all fits into one
// device; layers where it does not. What is divided finer would move more than it computes.
struct MeshOfBoxes : layers::ConfigOf<MeshOfBoxes, MeshModifier> {
  static constexpr std::string_view kName = "MeshOfBoxes";
  static constexpr std::string_view kAbout =
      "Divides the devices of the hardware's name over data, or over pipeline where a model does not fit "
      "into one.";
  void fields(layers::FieldVisitor&) override {}
  void apply(TrainerConfig& config, const layers::ClassTable& classes) const override;
};

// The number of devices of a hardware's name; 1 where it has none.
std::int64_t devices_of(const std::string& hardware);

void add_mesh_modifier_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer
