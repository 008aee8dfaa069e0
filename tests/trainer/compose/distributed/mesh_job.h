// A job that trains a tiny model over the ranks of a mesh, as threads, and what it must have computed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hal/transport/transport.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/support.h"
#include "trainer/learner/learner.h"
#include "trainer/mesh/topology.h"

namespace meshloom::tests {

constexpr int kSteps = 3;

struct Job {
  layers::Child<layers::Config> model = tiny_llama();
  std::shared_ptr<trainer::Learner::Config> learner = std::make_shared<trainer::AdamW::Config>(adamw());
  std::int64_t accumulation = 1;
  std::vector<std::int64_t> shares = {};
  trainer::ScheduleKind schedule = trainer::ScheduleKind::one_f_one_b;
  bool documents = false;
  std::int64_t source = 0;  // tokens of an encoder's sources
  kernels::DType dtype = kernels::DType::f32;
  std::vector<trainer::RematRule> remat = {};
  std::function<void(trainer::Plan&)> fault = {};
  std::string attention = "gather";
  trainer::SequenceOrder order = trainer::SequenceOrder::contiguous;
  std::int64_t sequence = 0;  // 0: that of small_options()
  bool overlap = true;
  std::function<std::unique_ptr<hal::Transport>(std::unique_ptr<hal::Transport>)> wrap = {};
  std::map<int, double> slow = {};  // devices
  trainer::OuterOptions outer = {};
  int steps = kSteps;
  bool all_targets = false;  // none is ignored
  kernels::DType gradient_dtype = kernels::DType::f32;
  bool parameter_copies = true;
};

// What a job computed: the metrics of every step, and all parameters and optimizer states after the last.
struct Outcome {
  std::vector<std::vector<float>> metrics;
  std::map<std::string, std::vector<float>> values;
  std::vector<trainer::Plan> plans;  // by rank
};

trainer::ComposeOptions options_of(const Job& job, const std::vector<trainer::MeshAxis>& mesh, int rank);
Outcome run(const Job& job, const std::vector<trainer::MeshAxis>& mesh);
// The largest difference, in units of the largest value.
double difference(const std::vector<float>& a, const std::vector<float>& b);

constexpr double kLosses = 1e-5;
// Adam and Muon divide by what may be tiny, which magnifies the rounding of sums; SGD does not.
constexpr double kMagnified = 1e-3;

// `rounding` names tensors whose gradients are nothing but rounding.
void expect_equal(const Outcome& got, const Outcome& want, double tolerance,
                  const std::vector<std::string>& rounding = {});

using Meshes = std::vector<std::vector<trainer::MeshAxis>>;
inline const Meshes kMeshes{{{"data", 4}}, {{"fsdp", 4}}, {{"data", 2}, {"fsdp", 2}}};

// Over these meshes the job computes what one rank does.
void check(const Job& job, double tolerance, const Meshes& meshes = kMeshes);

template <typename Config>
std::shared_ptr<Config> learner() {
  auto config = std::make_shared<Config>();
  config->peak_learning_rate = 1e-2;
  return config;
}

template <typename Model>
Model with(Model model, const std::string& field, const std::string& value) {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  layers::set(model, field, value, classes);
  return model;
}
// Four experts, two for each token.
template <typename Model>
Model of_four_experts(Model model, const std::string& fields = "") {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  layers::replace(model, "FeedForward",
                  "MoE{num_experts=4 " + (fields.empty() ? "gating=TopK{k=2}" : fields) + "}", classes);
  return model;
}
template <typename Model>
Model deep(const Model& model) {
  return with(model, "decoder.stack.num_layers", "4");
}
// Four layers, without a tied embedding.
layers::CausalLM::Config untied_llama();

inline const std::vector<trainer::ScheduleKind> kSchedules{
    trainer::ScheduleKind::gpipe, trainer::ScheduleKind::one_f_one_b, trainer::ScheduleKind::interleaved,
    trainer::ScheduleKind::zero_bubble};

}  // namespace meshloom::tests
