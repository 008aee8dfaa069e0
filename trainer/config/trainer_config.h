// The root of a recipe: everything a run is.
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
      "Names the variant of some calls; one that does not fit is an error.";
  std::string op = "**", path = "**";
  layers::Required<std::string> variant;
  void fields(layers::FieldVisitor& v) override;
};

// See RematRule in trainer/compose/compose.h.
struct RematRuleConfig : layers::ConfigOf<RematRuleConfig> {
  static constexpr std::string_view kName = "RematRule";
  static constexpr std::string_view kAbout = "Whether some values are kept for the backward pass.";
  std::string tag = "**";
  bool save = true;
  void fields(layers::FieldVisitor& v) override;
};

// The fields that say which calls get which variant, of a rule and of the modifier that sets one.
void add_kernel_rule_fields(layers::FieldVisitor& v, std::string& op, std::string& path,
                            layers::Required<std::string>& variant);

struct TrainerConfig;

// An edit that a mesh rule makes to a recipe: see modifier.h.
struct ModifierConfig : layers::Config {
  static constexpr std::string_view kAbout = "An edit of a recipe, for mesh rules and --modify.";
  // Throws Error on a value or path that does not exist.
  virtual void apply(TrainerConfig& config, const layers::ClassTable& classes) const = 0;
};

// Where the hardware's name matches `pattern` in full, the modifiers edit the tree, in order, once. Of several
// rules the first that matches is taken.
struct MeshRuleConfig : layers::ConfigOf<MeshRuleConfig> {
  static constexpr std::string_view kName = "MeshRule";
  static constexpr std::string_view kAbout = "Edits the recipe where the hardware has such a name.";
  layers::Required<std::string> pattern;
  std::vector<layers::Child<ModifierConfig>> modifiers;
  void fields(layers::FieldVisitor& v) override;
};

struct TrainerConfig : layers::ConfigOf<TrainerConfig> {
  static constexpr std::string_view kName = "Trainer";
  static constexpr std::string_view kAbout = "The root of a recipe: everything a run is.";
  layers::Child<layers::LanguageModel::Config> model;
  layers::Child<Learner::Config> learner;
  layers::Child<InputConfig> input = TextFilesConfig{};
  std::int64_t batch = 1;       // rows of one step
  std::int64_t sequence = 128;  // tokens of one row
  std::int64_t accumulation =
      1;                      // micro-batches of one step; divides batch and changes no result but rounding
  std::int64_t steps = 1000;  // the run ends after this one
  std::int64_t seed = 0;
  std::int64_t eval_every = 100;        // steps; 0 = only at the end
  std::int64_t eval_batches = 8;        // 0 = no evaluation
  std::int64_t checkpoint_every = 200;  // steps; 0 = only at the end
  std::int64_t keep = 2;                // checkpoints; 0 = all
  std::string dtype = "f32";
  std::string hardware;  // name the mesh rules were applied for; "" = not applied yet
  std::string device;    // BACKEND or BACKEND:INDEX; "" = the best one found
  std::string profile;   // what it runs as; "" = itself
  layers::Child<MeshConfig> mesh = MeshConfig{};
  std::vector<layers::Child<KernelRuleConfig>> kernels;
  std::vector<layers::Child<RematRuleConfig>> remat;
  std::vector<layers::Child<MeshRuleConfig>> mesh_rules;

  void fields(layers::FieldVisitor& v) override;
  // Throws Error naming the first field that makes no sense, alone or with the others.
  void check() const;
  ComposeOptions compose_options() const;
};

// Every class that a recipe may name: layers, learner, input, rules; former names are read (former_names.h).
layers::ClassTable recipe_classes();

// parse() that must give a Trainer written by this version's format.
TrainerConfig parse_recipe(std::string_view text, const layers::ClassTable& classes, const std::string& name);
// print() under a line that says the format.
std::string print_recipe(const TrainerConfig& config);

}  // namespace meshloom::trainer
