#include <charconv>
#include <type_traits>

#include "layers/config/field.h"
#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }

std::string text_of(double value) {
  char buffer[64];  // the shortest text that reads back to the same bits
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

std::string text_of(const std::string& value) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      text += c;
    }
  }
  return text + "\"";
}

template <typename T>
std::string text_of(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) text += (text.size() > 1 ? ", " : "") + text_of(value);
  return text + "]";
}

template <typename T>
std::string text_of(const OptionalField<T>& field) {
  if (*field.value) return text_of(**field.value);
  return field.required ? "required" : "none";
}

std::string slot_text(const ChildSlot& slot, int indent) {
  return slot.get() ? config_text(*slot.get(), indent) : "none";
}

}  // namespace

std::string leaf_text(const FieldValue& value) {
  return std::visit(
      [](const auto& leaf) {
        using T = std::decay_t<decltype(leaf)>;
        if constexpr (std::is_same_v<T, ChildSlot*> || std::is_same_v<T, ChildList>)
          return std::string();
        else if constexpr (std::is_pointer_v<T>)
          return text_of(*leaf);
        else
          return text_of(leaf);
      },
      value);
}

std::string field_text(const FieldValue& value, int indent) {
  if (const auto* slot = std::get_if<ChildSlot*>(&value)) return slot_text(**slot, indent);
  const auto* list = std::get_if<ChildList>(&value);
  if (!list) return leaf_text(value);
  if (list->slots->empty()) return "[]";
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string text = "[\n";
  for (const auto& slot : *list->slots) text += margin + "  " + slot_text(*slot, indent + 2) + ",\n";
  return text + margin + "]";
}

std::string config_text(const Config& config, int indent) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string text;
  // fields() is not const because it serves reading and writing; nothing is written here.
  for_each_field(const_cast<Config&>(config), [&](const Field& field) {
    text += margin + "  " + std::string(field.name) + " = " + field_text(field.value, indent + 2) + "\n";
  });
  return std::string(config.class_name()) + (text.empty() ? " {}" : " {\n" + text + margin + "}");
}

std::string print(const Config& config) { return config_text(config, 0) + "\n"; }

}  // namespace meshloom::layers
