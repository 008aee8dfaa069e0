// The root of a recipe, which describes a whole run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "layers/models/language_model.h"
#include "trainer/compose/compose.h"
#include "trainer/data/text/text_files.h"
#include "trainer/learner/learner.h"
#include "trainer/mesh/mesh.h"

namespace meshloom::trainer {

// See KernelRule in trainer/compose/compose.h.
struct KernelRuleConfig : layers::ConfigOf<KernelRuleConfig> {
  static constexpr std::string_view kName = "KernelRule";
  static constexpr std::string_view kAbout =
      "Names the kernel variant of some calls; a variant that does not fit is an error.";
  std::string op = "**", path = "**";
  layers::Required<std::string> variant;
  std::vector<std::string> params;  // "NAME=VALUE"
  void fields(layers::FieldVisitor& v) override;
};

// See RematRule in trainer/compose/compose.h.
struct RematRuleConfig : layers::ConfigOf<RematRuleConfig> {
  static constexpr std::string_view kName = "RematRule";
  static constexpr std::string_view kAbout =
      "Says what becomes of some values until the backward pass reads them.";
  std::string tag = "**";
  std::string policy = "save";
  void fields(layers::FieldVisitor& v) override;
};

// The fields that KernelRule and the modifier SetKernel share.
void add_kernel_rule_fields(layers::FieldVisitor& v, std::string& op, std::string& path,
                            layers::Required<std::string>& variant, std::vector<std::string>& params);

struct TrainerConfig;

// An edit that a mesh rule makes to a recipe: see modifier.h.
struct ModifierConfig : layers::Config {
  static constexpr std::string_view kAbout = "An edit of a recipe, for mesh rules and --modify.";
  // Throws Error on a value or path that does not exist.
  virtual void apply(TrainerConfig& config, const layers::ClassTable& classes) const = 0;
};

// When the hardware's full name matches `pattern`, the modifiers edit the recipe in order, once. Of several
// rules only the first that matches is applied.
struct MeshRuleConfig : layers::ConfigOf<MeshRuleConfig> {
  static constexpr std::string_view kName = "MeshRule";
  static constexpr std::string_view kAbout = "Edits the recipe when the hardware's name matches.";
  layers::Required<std::string> pattern;
  std::vector<layers::Child<ModifierConfig>> modifiers;
  void fields(layers::FieldVisitor& v) override;
};

struct TrainerConfig : layers::ConfigOf<TrainerConfig> {
  static constexpr std::string_view kName = "Trainer";
  static constexpr std::string_view kAbout = "The root of a recipe, which describes a whole run.";
  layers::Child<layers::LanguageModel::Config> model;
  layers::Child<Learner::Config> learner;
  layers::Child<InputConfig> input = TextFilesConfig{};
  std::int64_t batch = 1;       // rows of one step
  std::int64_t sequence = 128;  // tokens of one row
  std::int64_t accumulation =
      1;  // micro-batches of one step; must divide batch; changes results by rounding only
  std::int64_t steps = 1000;  // the run ends after this step
  std::int64_t seed = 0;
  std::int64_t eval_every = 100;        // steps; 0 = only at the end
  std::int64_t eval_batches = 8;        // 0 = no evaluation
  std::int64_t checkpoint_every = 200;  // steps; 0 = only at the end
  std::int64_t keep = 2;                // checkpoints; 0 = all
  double snapshot_seconds = 5;          // of work between copies in the host's memory; 0 = none
  std::string dtype = "f32";
  std::string param_dtype = "f32";
  std::string hardware;        // the name that the mesh rules were applied for; "" = not applied yet
  std::string device;          // BACKEND or BACKEND:INDEX; "" = the best device found
  std::string profile;         // the profile that it runs as; "" = its own
  std::int64_t memory = 0;     // the most bytes of device memory that the run may take; 0 = all
  bool hardware_rules = true;  // whether the program's own rules edit it, see trainer/rules/hardware_rule.h
  bool fit = false;            // whether it is still to be edited so that it fits, see trainer/rules/fit.h
  layers::Child<MeshConfig> mesh = MeshConfig{};
  std::vector<layers::Child<KernelRuleConfig>> kernels;
  std::vector<layers::Child<RematRuleConfig>> remat;
  bool offload_optimizer = false;  // whether the host updates the parameters and keeps the optimizer's state
  bool optimizer_in_backward = false;  // whether a parameter is updated as soon as its gradient is known
  std::vector<layers::Child<MeshRuleConfig>> mesh_rules;

  void fields(layers::FieldVisitor& v) override;
  // Throws Error naming the first field that is invalid or contradicts another.
  void check() const;
  ComposeOptions compose_options() const;
};

// Every class that a recipe may name: layers, learner, input, rules; former names are read (former_names.h).
layers::ClassTable recipe_classes();

// Parses a recipe, which must be a Trainer in the format of this version.
TrainerConfig parse_recipe(std::string_view text, const layers::ClassTable& classes, const std::string& name);
// The printed recipe below a line that names the format.
std::string print_recipe(const TrainerConfig& config);

}  // namespace meshloom::trainer
