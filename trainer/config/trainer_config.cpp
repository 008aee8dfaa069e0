#include "trainer/config/trainer_config.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "trainer/compose/passes/distributed/partition.h"
#include "trainer/config/former_names.h"
#include "trainer/config/modifier.h"

namespace meshloom::trainer {
namespace {

constexpr std::string_view kHeader = "# meshloom recipe, format ";
constexpr int kFormat = 1;

// {"tile_m=64"} as a map. Throws Error on any other form.
std::map<std::string, std::int64_t> params_of(const std::vector<std::string>& texts) {
  std::map<std::string, std::int64_t> params;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + std::min(equals, text.size() - 1) + 1, end, value);
    if (equals == std::string::npos || equals == 0 || parsed.ec != std::errc{} || parsed.ptr != end)
      throw Error("KernelRule.params", "must read NAME=VALUE, with an integer", "'" + text + "'");
    if (!params.emplace(text.substr(0, equals), value).second)
      throw Error("KernelRule.params", "must name a parameter once", "'" + text + "' again");
  }
  return params;
}

RematPolicy remat_policy_of(std::string_view name) {
  for (const RematPolicy policy : {RematPolicy::save, RematPolicy::recompute, RematPolicy::offload})
    if (to_string(policy) == name) return policy;
  throw Error("remat policy", "must be save, recompute or offload", std::string(name));
}

void at_least(const char* field, std::int64_t value, std::int64_t min) {
  if (value < min) throw Error(field, "must be at least " + std::to_string(min), std::to_string(value));
  if (value > std::numeric_limits<std::int32_t>::max())
    throw Error(field, "must be below 2^31", std::to_string(value));
}

}  // namespace

void add_kernel_rule_fields(layers::FieldVisitor& v, std::string& op, std::string& path,
                            layers::Required<std::string>& variant, std::vector<std::string>& params) {
  v("op", op,
    {"Pattern over the names of ops: * is any part of one name, ** any names, {a,b} either; . and / part "
     "names.",
     layers::means("ops of a kernel rule")});
  v("path", path,
    {"Pattern over the paths of the layers that call: * is any part of one name, ** any names, {a,b} either; "
     ". and / "
     "part names.",
     layers::means("paths of a kernel rule")});
  v("variant", variant,
    {"The variant that these calls get, see `meshloom kernels`; tuned: the fastest that `meshloom bench "
     "tune` measured, here or on a similar device; measured: the fastest that it measured on this very "
     "device, for calls that it measured.",
     layers::means("variant of a kernel rule")});
  v("params", params,
    {"NAME=VALUE, parameters that the variant must have for these calls, such as the size of a tile; see "
     "`meshloom kernels --json`.",
     layers::means("parameters of a kernel rule")});
}

void KernelRuleConfig::fields(layers::FieldVisitor& v) {
  add_kernel_rule_fields(v, op, path, variant, params);
}

void RematRuleConfig::fields(layers::FieldVisitor& v) {
  v("tag", tag,
    {"Pattern over the tags of values: * is any part of one name, ** any names, {a,b} either; . and / part "
     "names."});
  v("policy", policy,
    {"Where the values are until the backward pass: save keeps them in the device's memory, recompute "
     "computes them again, offload keeps them in the host's memory.",
     layers::one_of("save", "recompute", "offload"), layers::means("policy of rematerialization"),
     layers::formerly("save"), layers::former_value("true", "save"),
     layers::former_value("false", "recompute")});
}

void MeshRuleConfig::fields(layers::FieldVisitor& v) {
  v("pattern", pattern,
    {"Regular expression that the hardware's name, BACKEND-PROFILE-N, must match in full."});
  v("modifiers", modifiers, {"The modifiers that edit the recipe, in order."});
}

void TrainerConfig::fields(layers::FieldVisitor& v) {
  v("model", model, {"The model."});
  v("learner", learner, {"How parameters follow their gradients."});
  v("input", input, {"Where the tokens come from."});
  v("batch", batch, {"Rows of one step.", layers::at_least(1)});
  v("sequence", sequence, {"Tokens of one row.", layers::at_least(1)});
  v("accumulation", accumulation,
    {"Micro-batches of one step; must divide the batch; changes results by rounding only, but for a "
     "LoadBalancingLoss, which is that of each micro-batch.",
     layers::at_least(1), layers::means("micro-batches of a step")});
  v("steps", steps, {"The run ends after this step.", layers::at_least(1)});
  v("seed", seed, {"The seed of all random numbers of the run."});
  v("eval_every", eval_every,
    {"Steps from one evaluation to the next; 0: only at the end.", layers::at_least(0)});
  v("eval_batches", eval_batches, {"Batches of one evaluation; 0: no evaluation.", layers::at_least(0)});
  v("checkpoint_every", checkpoint_every,
    {"Steps from one checkpoint to the next; 0: only at the end.", layers::at_least(0)});
  v("keep", keep, {"How many of the newest checkpoints are kept; 0: all.", layers::at_least(0)});
  v("snapshot_seconds", snapshot_seconds,
    {"Seconds of work after which the run's state is copied to the host's memory again, from where it goes "
     "on when "
     "the device is lost, and is saved when a signal ends a step that takes long; copying takes at most a "
     "twentieth "
     "of the time; 0: no copies.",
     layers::at_least(0)});
  v("dtype", dtype,
    {"The dtype of activations; gradients of parameters and the optimizer are f32.",
     layers::one_of("f32", "bf16", "f16"), layers::means("dtype of activations")});
  v("param_dtype", param_dtype,
    {"The dtype in which parameters are stored; bf16: updates are computed in f32 and rounded "
     "stochastically, and "
     "no copy in f32 is kept.",
     layers::one_of("f32", "bf16")});
  v("hardware", hardware,
    {"The hardware's name that the mesh rules were applied for; \"\": not applied yet."});
  v("device", device, {"BACKEND or BACKEND:INDEX (see `meshloom devices`); \"\": the best device found."});
  v("profile", profile,
    {"The profile that the device runs as (see `meshloom profiles`); \"\": its own.",
     layers::means("profile of a run")});
  v("memory", memory,
    {"The most bytes of device memory that the run may take; 0: all of it.", layers::at_least(0)});
  v("hardware_rules", hardware_rules,
    {"Whether the rules that ship with the program edit the recipe where none of mesh_rules matches."});
  v("fit", fit,
    {"Whether the run chooses micro-batches, remat and chunks of the loss so that it fits into the memory; "
     "it "
     "sets this to false when it has."});
  v("mesh", mesh, {"How many ranks each axis of the mesh has.", layers::means("mesh of a run")});
  v("kernels", kernels, {"Which kernel variants calls get; later rules win."});
  v("remat", remat, {"Which values are kept for the backward pass; the first rule that matches wins."});
  v("offload_optimizer", offload_optimizer,
    {"Whether the host updates the parameters and keeps the optimizer's state, which then takes no memory of "
     "the "
     "device; changes results by rounding only."});
  v("optimizer_in_backward", optimizer_in_backward,
    {"Whether each parameter is updated as soon as its gradient is known, which is then freed; needs a "
     "learner.clip_norm of 0, an accumulation of 1 and another dtype than f16."});
  v("mesh_rules", mesh_rules,
    {"Edits of the recipe by hardware; the first rule whose pattern matches is applied, once."});
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
  if (!(snapshot_seconds >= 0 && snapshot_seconds <= 1e9))
    throw Error("snapshot_seconds", "must be from 0 to 1e9", std::to_string(snapshot_seconds));
  if (memory < 0) throw Error("memory", "must be at least 0", std::to_string(memory));
  if (batch % accumulation != 0)
    throw Error("accumulation", "must divide batch = " + std::to_string(batch), std::to_string(accumulation));
  input->check();
  if (dtype != "f32" && dtype != "bf16" && dtype != "f16")
    throw Error("dtype", "must be f32, bf16 or f16", "'" + dtype + "'");
  if (param_dtype != "f32" && param_dtype != "bf16")
    throw Error("param_dtype", "must be f32 or bf16", "'" + param_dtype + "'");
  mesh->size();
  schedule_kind_from_string(mesh->schedule);
  sequence_order_from_string(mesh->sequence_order);
  static_cast<void>(Topology(mesh->axes()));
  mesh->check_shares_of(batch / accumulation);
  if (!mesh->outer) throw Error("mesh.outer", "must be set", "none");
  mesh->outer->options();
  learner->check();
  if (const std::int64_t limit = layers::max_sequence(*model); limit > 0 && sequence > limit)
    throw Error("sequence", "must be at most the model's " + std::to_string(limit) + " positions",
                std::to_string(sequence));
  const std::int64_t source = input->source(sequence);
  if (layers::reads_source(*model) != (source > 0))
    throw Error("input",
                source > 0 ? "must have no sources: only a model with an encoder reads them"
                           : "must have sources for the model's encoder, such as JsonlPairs",
                "'" + std::string(input->class_name()) + "'");
  if (const std::int64_t limit = layers::max_source(*model); limit > 0 && source > limit)
    throw Error("input", "must have sources of at most the encoder's " + std::to_string(limit) + " positions",
                std::to_string(source));
}

ComposeOptions TrainerConfig::compose_options() const {
  ComposeOptions options;
  options.batch = batch;
  options.sequence = sequence;
  options.accumulation = accumulation;
  options.dtype = hal::dtype_from_string(dtype);
  for (const auto& rule : kernels)
    options.kernels.push_back(
        {current_op_pattern(rule->op), rule->path, rule->variant, params_of(rule->params)});
  for (const auto& rule : remat) options.remat.push_back({rule->tag, remat_policy_of(rule->policy)});
  options.mesh = mesh->axes();
  options.shares = mesh->shares;
  options.schedule = schedule_kind_from_string(mesh->schedule);
  options.chunks = static_cast<int>(mesh->chunks);
  options.attention = mesh->attention;
  options.sequence_order = sequence_order_from_string(mesh->sequence_order);
  options.outer = mesh->outer->options();
  options.gradient_dtype = moved_dtype("mesh.gradient_dtype", mesh->gradient_dtype);
  options.offload_optimizer = offload_optimizer;
  options.optimizer_in_backward = optimizer_in_backward;
  options.param_dtype = hal::dtype_from_string(param_dtype);
  options.evaluation = eval_batches > 0;
  options.documents = input->documents();
  options.preferences = input->preferences();
  options.source = input->source(sequence);
  return options;
}

layers::ClassTable recipe_classes() {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  add_learner_classes(classes);
  add_input_classes(classes);
  add_modifier_classes(classes);
  classes.add<OuterConfig>();
  classes.add<MeshConfig>();
  classes.add<KernelRuleConfig>();
  classes.add<RematRuleConfig>();
  classes.add<MeshRuleConfig>();
  classes.add<TrainerConfig>();
  add_former_class_names(classes);
  return classes;
}

TrainerConfig parse_recipe(std::string_view text, const layers::ClassTable& classes,
                           const std::string& name) {
  if (text.starts_with(kHeader)) {
    const std::string_view rest = text.substr(kHeader.size(), text.find('\n') - kHeader.size());
    int format = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), format);
    if (error != std::errc{} || format != kFormat)
      throw Error(name + ":1",
                  "this program reads recipe format " + std::to_string(kFormat) +
                      "; another version of the program wrote this one",
                  "format " + std::string(rest));
  }
  const std::unique_ptr<layers::Config> config = layers::parse(text, classes, name);
  const auto* trainer = dynamic_cast<const TrainerConfig*>(config.get());
  if (!trainer) throw Error(name, "a recipe must be a Trainer", "a " + std::string(config->class_name()));
  return *trainer;
}

std::string print_recipe(const TrainerConfig& config) {
  std::string text = std::string(kHeader) + std::to_string(kFormat) + "\n" + layers::print(config);
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

}  // namespace meshloom::trainer
