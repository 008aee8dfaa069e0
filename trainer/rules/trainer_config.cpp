#include "trainer/rules/trainer_config.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "layers/trace.h"
#include "trainer/rules/modifier.h"

namespace meshloom::trainer {
namespace {

constexpr std::string_view kHeader = "# meshloom recipe, format ";
constexpr int kFormat = 1;

void at_least(const char* field, std::int64_t value, std::int64_t least) {
  if (value < least) throw Error(field, "must be at least " + std::to_string(least), std::to_string(value));
  if (value > std::numeric_limits<std::int32_t>::max())
    throw Error(field, "must be below 2^31", std::to_string(value));
}

}  // namespace

void KernelRuleConfig::fields(layers::FieldVisitor& v) {
  v("op", op);
  v("path", path);
  v("variant", variant);
}

void RematRuleConfig::fields(layers::FieldVisitor& v) {
  v("tag", tag);
  v("save", save);
}

void MeshRuleConfig::fields(layers::FieldVisitor& v) {
  v("pattern", pattern);
  v("modifiers", modifiers);
}

void TrainerConfig::fields(layers::FieldVisitor& v) {
  v("model", model);
  v("learner", learner);
  v("input", input);
  v("batch", batch);
  v("sequence", sequence);
  v("accumulation", accumulation);
  v("steps", steps);
  v("seed", seed);
  v("eval_every", eval_every);
  v("eval_batches", eval_batches);
  v("checkpoint_every", checkpoint_every);
  v("keep", keep);
  v("dtype", dtype);
  v("hardware", hardware);
  v("device", device);
  v("profile", profile);
  v("mesh", mesh);
  v("kernels", kernels);
  v("remat", remat);
  v("mesh_rules", mesh_rules);
}

void TrainerConfig::check() const {
  layers::check_complete(*this);
  if (!model) throw Error("model", "must be set", "none");
  if (!learner) throw Error("learner", "must be set", "none");
  if (!input) throw Error("input", "must be set", "none");
  if (!mesh) throw Error("mesh", "must be set", "none");
  at_least("batch", batch, 1);
  at_least("sequence", sequence, 1);
  at_least("accumulation", accumulation, 1);
  at_least("steps", steps, 1);
  at_least("eval_every", eval_every, 0);
  at_least("eval_batches", eval_batches, 0);
  at_least("checkpoint_every", checkpoint_every, 0);
  at_least("keep", keep, 0);
  if (batch % accumulation != 0)
    throw Error("accumulation", "must divide batch = " + std::to_string(batch), std::to_string(accumulation));
  input->check();
  if (dtype != "f32" && dtype != "bf16" && dtype != "f16")
    throw Error("dtype", "must be f32, bf16 or f16", "'" + dtype + "'");
  if (const std::int64_t ranks = mesh->size(); ranks > 1)
    throw Error("mesh", "must have one rank; more are not built yet", std::to_string(ranks));
  learner->check();
  if (const std::int64_t most = layers::max_sequence(*model); most > 0 && sequence > most)
    throw Error("sequence", "must be at most the model's " + std::to_string(most) + " positions",
                std::to_string(sequence));
  const std::int64_t source = input->source(sequence);
  if (layers::reads_source(*model) != (source > 0))
    throw Error("input", source > 0 ? "must be without sources: only a model with an encoder reads them"
                                    : "must have sources for the model's encoder, as JsonlPairs has",
                "'" + std::string(input->class_name()) + "'");
  if (const std::int64_t most = layers::max_source(*model); most > 0 && source > most)
    throw Error("input", "must have sources of at most the encoder's " + std::to_string(most) + " positions",
                std::to_string(source));
}

ComposeOptions TrainerConfig::compose_options() const {
  ComposeOptions options;
  options.batch = batch;
  options.sequence = sequence;
  options.accumulation = accumulation;
  options.dtype = hal::dtype_from_string(dtype);
  for (const auto& rule : kernels) options.kernels.push_back({rule->op, rule->path, rule->variant});
  for (const auto& rule : remat) options.remat.push_back({rule->tag, rule->save});
  options.mesh = mesh->axes();
  options.evaluation = eval_batches > 0;
  options.documents = input->documents();
  options.source = input->source(sequence);
  return options;
}

layers::ClassTable recipe_classes() {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  add_learner_classes(classes);
  add_input_classes(classes);
  add_modifier_classes(classes);
  classes.add<MeshConfig>();
  classes.add<KernelRuleConfig>();
  classes.add<RematRuleConfig>();
  classes.add<MeshRuleConfig>();
  classes.add<TrainerConfig>();
  return classes;
}

TrainerConfig parse_recipe(std::string_view text, const layers::ClassTable& classes, const std::string& name) {
  if (text.starts_with(kHeader)) {
    const std::string_view rest = text.substr(kHeader.size(), text.find('\n') - kHeader.size());
    int format = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), format);
    if (error != std::errc{} || format != kFormat)
      throw Error(name + ":1", "this program reads recipe format " + std::to_string(kFormat) +
                                   "; another version of it wrote this one",
                  "format " + std::string(rest));
  }
  const std::unique_ptr<layers::Config> config = layers::parse(text, classes, name);
  const auto* trainer = dynamic_cast<const TrainerConfig*>(config.get());
  if (!trainer) throw Error(name, "a recipe is a Trainer", "a " + std::string(config->class_name()));
  return *trainer;
}

std::string print_recipe(const TrainerConfig& config) {
  std::string text = std::string(kHeader) + std::to_string(kFormat) + "\n" + layers::print(config);
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

}  // namespace meshloom::trainer
