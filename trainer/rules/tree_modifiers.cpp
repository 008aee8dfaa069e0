#include "trainer/rules/tree_modifiers.h"

#include "hal/suggest.h"
#include "layers/adapter.h"
#include "layers/config/tree.h"

namespace meshloom::trainer {
namespace {

void wrap_chosen(TrainerConfig& config, const layers::Selection& selection,
                 const layers::Child<layers::Config>& with, const std::string& slot,
                 const layers::ClassTable& classes) {
  if (!with) throw Error("with", "names the class to wrap in", "none");
  layers::wrap(config, selection, *with, slot, classes);
}

}  // namespace

void SelectingModifier::fields(layers::FieldVisitor& v) {
  v("where", selection.where);
  v("except", selection.except);
  v("class", selection.of_class);
  v("having", selection.having);
  v("matches", selection.matches);
}

void SetWhere::fields(layers::FieldVisitor& v) {
  SelectingModifier::fields(v);
  v("field", field);
  v("value", value);
}

void SetWhere::apply(TrainerConfig& config, const layers::ClassTable& classes) const {
  const std::vector<std::string> paths = layers::select(config, selection, classes);
  TrainerConfig edited = config;  // in all places or in none
  for (const std::string& path : paths) layers::set(edited, path + "." + field.get(), value.get(), classes);
  config = edited;
}

void Replace::fields(layers::FieldVisitor& v) {
  SelectingModifier::fields(v);
  v("with", with);
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
  v("with", with);
  v("slot", slot);
}

void Wrap::apply(TrainerConfig& config, const layers::ClassTable& classes) const {
  wrap_chosen(config, selection, with, slot, classes);
}

void Adapt::fields(layers::FieldVisitor& v) {
  SelectingModifier::fields(v);
  v("with", with);
}

void Adapt::apply(TrainerConfig& config, const layers::ClassTable& classes) const {
  if (with && !with.as<layers::Adapter::Config>())
    throw Error("with", "must be an adapter, such as Lora", "'" + std::string(with->class_name()) + "'");
  if (!config.learner) throw Error("learner", "must be set before adapters are", "none");
  wrap_chosen(config, selection, with, "base", classes);
  config.learner->train = "adapters";
}

void Treat::apply(TrainerConfig& config, const layers::ClassTable&) const {
  if (!config.learner) throw Error("learner", "must be set before its rules are", "none");
  config.learner->rules.emplace_back(rule);
}

void add_tree_modifier_classes(layers::ClassTable& classes) {
  classes.add<SetWhere>();
  classes.add<Replace>();
  classes.add<Quantize>();
  classes.add<Wrap>();
  classes.add<Adapt>();
  classes.add<Treat>();
}

}  // namespace meshloom::trainer
