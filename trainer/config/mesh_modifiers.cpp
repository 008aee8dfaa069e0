#include "trainer/config/mesh_modifiers.h"

#include <algorithm>
#include <charconv>

#include "hal/profile.h"
#include "kernels/core/catalog.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {
namespace {

// Parameters, gradients and two moments of f32, as AdamW has them.
constexpr std::int64_t kTrainedBytes = 16, kFrozenBytes = 2;

std::int64_t& axis_of(MeshConfig& mesh, const std::string& name) {
  return name == "data"    ? mesh.data
         : name == "fsdp"  ? mesh.fsdp
         : name == "model" ? mesh.model
                           : mesh.pipeline;
}

// What is kept from step to step, and how much of it is trained.
struct Kept {
  std::int64_t trained = 0, frozen = 0;  // parameters
  std::int64_t bytes() const { return kTrainedBytes * trained + kFrozenBytes * frozen; }
};

Kept kept_by(const TrainerConfig& config) {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  Kept kept;
  for (const layers::ParameterInfo& info :
       layers::trace_logits(*config.model, catalog, 1, config.sequence, config.input->source(config.sequence))
           .parameters)
    (info.frozen ? kept.frozen : kept.trained) += info.count();
  return kept;
}

std::int64_t memory_of(const TrainerConfig& config) {
  for (const hal::Profile& profile : hal::shipped_profiles())
    if (profile.name == config.profile) return profile.memory_bytes;
  return 0;
}

}  // namespace

std::int64_t devices_of(const std::string& hardware) {
  const std::size_t dash = hardware.rfind('-');
  std::int64_t devices = 1;
  const char* const end = hardware.data() + hardware.size();
  if (dash == std::string::npos || std::from_chars(hardware.data() + dash + 1, end, devices).ptr != end)
    return 1;
  return std::max<std::int64_t>(1, devices);
}

void MeshOfNodes::fields(layers::FieldVisitor& v) {
  v("node", node, {"Devices that fast links join; 0: all.", layers::at_least(0)});
  v("inside", inside,
    {"The axis of the devices of a node.", layers::one_of("data", "fsdp", "model", "pipeline")});
  v("between", between, {"The axis of the nodes.", layers::one_of("data", "fsdp", "model", "pipeline")});
  v("max_model", max_model,
    {"The most devices of the axis model, which are used where there are fewer rows than devices.",
     layers::at_least(1)});
}

void MeshOfNodes::apply(TrainerConfig& config, const layers::ClassTable&) const {
  const std::int64_t devices = devices_of(config.hardware);
  if (devices == 1) return;
  const std::int64_t in_node = node == 0 ? devices : std::min(node, devices);
  if (devices % in_node != 0)
    throw Error("MeshOfNodes",
                "the devices must be a multiple of the " + std::to_string(in_node) + " of a node",
                std::to_string(devices));
  std::int64_t model = 1;
  while (2 * model <= max_model && in_node % (2 * model) == 0 &&
         config.batch / config.accumulation < devices / model)
    model *= 2;
  MeshConfig mesh = *config.mesh;
  axis_of(mesh, between) = devices / in_node;
  mesh.model = model;
  axis_of(mesh, inside) *= in_node / model;
  config.mesh = mesh;
}

void MeshOfBoxes::apply(TrainerConfig& config, const layers::ClassTable&) const {
  const std::int64_t devices = devices_of(config.hardware);
  if (devices == 1) return;
  MeshConfig mesh = *config.mesh;
  const Kept kept = kept_by(config);
  const std::int64_t memory = memory_of(config);
  if (kept.frozen > 0 || memory == 0 || kept.bytes() < memory || config.batch < devices) {
    mesh.data = devices;
  } else {
    mesh.pipeline = devices;
    // The bubble is small where there are many micro-batches.
    while (config.accumulation < 4 * devices && config.batch % (2 * config.accumulation) == 0)
      config.accumulation *= 2;
  }
  config.mesh = mesh;
}

void add_mesh_modifier_classes(layers::ClassTable& classes) {
  classes.add<MeshOfNodes>();
  classes.add<MeshOfBoxes>();
}

}  // namespace meshloom::trainer
