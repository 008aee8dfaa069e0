#include "trainer/config/tree_modifiers.h"

#include "hal/suggest.h"
#include "layers/adapters/adapter.h"
#include "layers/config/tree.h"

namespace meshloom::trainer {
namespace {

void wrap_chosen(TrainerConfig& config, const layers::Selection& selection,
                 const layers::Child<layers::Config>& with, const std::string& slot,
                 const layers::ClassTable& classes) {
  if (!with) throw Error("with", "must name the class to wrap in", "none");
  layers::wrap(config, selection, *with, slot, classes);
}

}  // namespace

void SelectingModifier::fields(layers::FieldVisitor& v) {
  v("where", selection.where,
    {"Pattern over the paths of nodes: * is any part of one name, ** any names, {a,b} either; . and / part "
     "names."});
  v("except", selection.except, {"Pattern over the paths of nodes that are not selected; \"\": none."});
  v("class", selection.of_class, {"The class of a node, or the interface of its place; \"\": any."});
  v("having", selection.having, {"FIELD=VALUE that a node must have; \"\": any."});
  v("matches", selection.matches,
    {"How many nodes must be selected; none: at least one.", layers::at_least(0)});
}

void SetWhere::fields(layers::FieldVisitor& v) {
  SelectingModifier::fields(v);
  v("field", field, {"The field of every selected node, or a path below it."});
  v("value", value, {"The value of the field, as a recipe writes it.", layers::means("value of a field")});
}

void SetWhere::apply(TrainerConfig& config, const layers::ClassTable& classes) const {
  const std::vector<std::string> paths = layers::select(config, selection, classes);
  TrainerConfig edited = config;  // either all places are edited or none
  for (const std::string& path : paths) layers::set(edited, path + "." + field.get(), value.get(), classes);
  config = edited;
}

void Replace::fields(layers::FieldVisitor& v) {
  SelectingModifier::fields(v);
  v("with", with,
    {"The class that takes their place, \"LayerNorm{eps=1e-6}\"; fields that both have, and mean alike, are "
     "kept."});
}

void Replace::apply(TrainerConfig& config, const layers::ClassTable& classes) const {
  std::vector<std::string> dropped;
  TrainerConfig edited = config;
  layers::replace(edited, selection, with.get(), classes, &dropped);
  if (!dropped.empty())
    throw Error("replacing by " + with.get(), "the new class must have a place for every field that was set",
                hal::join(dropped));
  config = edited;
}

void Wrap::fields(layers::FieldVisitor& v) {
  SelectingModifier::fields(v);
  v("with", with, {"The class that wraps each node."});
  v("slot", slot, {"The field of that class that receives the node."});
}

void Wrap::apply(TrainerConfig& config, const layers::ClassTable& classes) const {
  wrap_chosen(config, selection, with, slot, classes);
}

void Adapt::fields(layers::FieldVisitor& v) {
  SelectingModifier::fields(v);
  v("with", with, {"The adapter that wraps each layer, such as Lora or Dora."});
}

void Adapt::apply(TrainerConfig& config, const layers::ClassTable& classes) const {
  if (with && !with.as<layers::Adapter::Config>())
    throw Error("with", "must be an adapter, such as Lora", "'" + std::string(with->class_name()) + "'");
  if (!config.learner) throw Error("learner", "must be set before adapters are added", "none");
  wrap_chosen(config, selection, with, "base", classes);
  config.learner->train = "adapters";
}

void AddParameterGroup::apply(TrainerConfig& config, const layers::ClassTable&) const {
  if (!config.learner) throw Error("learner", "must be set before parameter groups are added", "none");
  config.learner->parameter_groups.emplace_back(group);
}

void add_tree_modifier_classes(layers::ClassTable& classes) {
  classes.add<SetWhere>();
  classes.add<Replace>();
  classes.add<Quantize>();
  classes.add<Wrap>();
  classes.add<Adapt>();
  classes.add<AddParameterGroup>();
}

}  // namespace meshloom::trainer
