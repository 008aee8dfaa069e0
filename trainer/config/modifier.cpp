#include "trainer/config/modifier.h"

#include "layers/config/tree.h"
#include "trainer/compose/rule_pattern.h"
#include "trainer/config/mesh_modifiers.h"
#include "trainer/config/tree_modifiers.h"

namespace meshloom::trainer {

void SetBackend::apply(TrainerConfig& config, const layers::ClassTable&) const { config.device = backend; }

void SetProfile::apply(TrainerConfig& config, const layers::ClassTable&) const { config.profile = profile; }

void SetMesh::apply(TrainerConfig& config, const layers::ClassTable&) const { config.mesh = mesh; }

void SetDType::apply(TrainerConfig& config, const layers::ClassTable&) const { config.dtype = dtype; }

void SetRemat::apply(TrainerConfig& config, const layers::ClassTable&) const { config.remat = rules; }

void SetAccumulation::apply(TrainerConfig& config, const layers::ClassTable&) const {
  config.accumulation = accumulation;
}

void Fit::apply(TrainerConfig& config, const layers::ClassTable&) const { config.fit = true; }

void SetKernel::fields(layers::FieldVisitor& v) { add_kernel_rule_fields(v, op, path, variant, params); }

void SetKernel::apply(TrainerConfig& config, const layers::ClassTable&) const {
  for (auto& rule : config.kernels)
    if (same_pattern(rule->op, op) && same_pattern(rule->path, path)) {
      rule->variant = variant;
      rule->params = params;
      return;
    }
  KernelRuleConfig rule;
  rule.op = op;
  rule.path = path;
  rule.variant = variant;
  rule.params = params;
  config.kernels.emplace_back(rule);
}

void SetField::fields(layers::FieldVisitor& v) {
  v("path", path, {"The path of one field, such as model.decoder.dim."});
  v("value", value, {"The value of the field, as a recipe writes it.", layers::means("value of a field")});
}

void SetField::apply(TrainerConfig& config, const layers::ClassTable& classes) const {
  layers::set(config, path.get(), value.get(), classes);
}

void Chain::apply(TrainerConfig& config, const layers::ClassTable& classes) const {
  for (const auto& modifier : modifiers) modifier->apply(config, classes);
}

void add_modifier_classes(layers::ClassTable& classes) {
  classes.add<SetBackend>();
  classes.add<SetProfile>();
  classes.add<SetMesh>();
  classes.add<SetDType>();
  classes.add<SetRemat>();
  classes.add<SetAccumulation>();
  classes.add<SetKernel>();
  classes.add<Fit>();
  classes.add<SetField>();
  classes.add<Chain>();
  add_mesh_modifier_classes(classes);
  add_tree_modifier_classes(classes);
}

}  // namespace meshloom::trainer
