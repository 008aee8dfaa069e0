#include "layers/config/describe.h"

#include <algorithm>
#include <map>
#include <type_traits>

#include "layers/config/field.h"

namespace meshloom::layers {
namespace {

// Calls fn with the slot of a child; for a list of children, with that of an item that is appended for the purpose.
template <typename F>
void with_slot(const FieldValue& value, F fn) {
  if (const auto* slot = std::get_if<ChildSlot*>(&value)) fn(**slot);
  if (const auto* list = std::get_if<ChildList>(&value)) fn((*list->append)());
}

template <typename T>
std::string type_name_of() {
  if constexpr (std::is_same_v<T, std::int64_t>)
    return "integer";
  else if constexpr (std::is_same_v<T, double>)
    return "number";
  else if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_same_v<T, std::string>)
    return "text";
  else
    return "list of " + type_name_of<typename T::value_type>() + "s";
}

template <typename T>
std::string type_name_of(T*) {
  return type_name_of<T>();
}
template <typename T>
std::string type_name_of(const OptionalField<T>& field) {
  return type_name_of<T>() + (field.required ? "" : " or none");
}
std::string type_name_of(ChildSlot* slot) { return std::string(slot->base_name()); }
std::string type_name_of(const ChildList& list) {
  return "list of " + std::string((*list.append)().base_name());
}

std::string type_of(const FieldValue& value) {
  return std::visit([](const auto& field) { return type_name_of(field); }, value);
}

std::string default_of(const FieldValue& value) {
  const auto class_of = [](const ChildSlot& slot) {
    return slot.get() ? std::string(slot.get()->class_name()) : std::string("none");
  };
  if (const auto* slot = std::get_if<ChildSlot*>(&value)) return class_of(**slot);
  const auto* list = std::get_if<ChildList>(&value);
  if (!list) return leaf_text(value);
  std::string text;
  for (const auto& slot : *list->slots) text += (text.empty() ? "" : ", ") + class_of(*slot);
  return "[" + text + "]";
}

}  // namespace

std::vector<InterfaceDescription> describe_interfaces(const ClassTable& classes) {
  std::map<std::string, InterfaceDescription> found;
  const std::vector<std::string> names = classes.names();
  for (const std::string& owner : names)
    for_each_field(*classes.make(owner), [&](const Field& field) {
      with_slot(field.value, [&](ChildSlot& slot) {
        const std::string name(slot.base_name());
        if (found.count(name)) return;
        InterfaceDescription& interface = found[name];
        interface = {name, std::string(slot.base_about()), {}};
        for (const std::string& candidate : names)
          if (slot.reset(classes.make(candidate))) interface.classes.push_back(candidate);
      });
    });
  std::vector<InterfaceDescription> interfaces;
  for (auto& [name, interface] : found)
    if (interface.classes.size() < names.size() && interface.classes != std::vector<std::string>{name})
      interfaces.push_back(std::move(interface));
  return interfaces;
}

std::vector<std::string> interfaces_of(const std::vector<InterfaceDescription>& all,
                                       const std::string& name) {
  std::vector<std::string> names;
  for (const InterfaceDescription& interface : all)
    if (std::find(interface.classes.begin(), interface.classes.end(), name) != interface.classes.end())
      names.push_back(interface.name);
  return names;
}

ClassDescription describe_class(const ClassTable& classes, const std::string& name) {
  ClassDescription result{std::string(classes.current_name(name)), std::string(classes.about(name)), {}};
  for_each_field(*classes.make(name), [&](const Field& field) {
    const std::string value = default_of(field.value);  // before type_of() appends an item to a list
    result.fields.push_back({std::string(field.name), type_of(field.value), value,
                             field.about.range().to_string(), std::string(field.about.sentence()),
                             std::string(field.about.meaning()), std::string(field.about.former_name())});
  });
  return result;
}

}  // namespace meshloom::layers
