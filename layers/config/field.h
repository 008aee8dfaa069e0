// The fields of a config as values of one type: what every tree function is written over.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "layers/config/config.h"

namespace meshloom::layers {

template <typename T>
struct OptionalField {
  std::optional<T>* value;
  bool required;
};

struct ChildList {
  const std::vector<std::unique_ptr<ChildSlot>>* slots;
  const std::function<ChildSlot&()>* append;
  const std::function<void()>* clear;
};

using FieldValue = std::variant<std::int64_t*, double*, bool*, std::string*, std::vector<std::int64_t>*,
                                std::vector<std::string>*, OptionalField<std::int64_t>, OptionalField<double>,
                                OptionalField<std::string>, ChildSlot*, ChildList>;

// Valid only while the function it is given to runs.
struct Field {
  std::string_view name;
  FieldValue value;
};

void for_each_field(Config& config, const std::function<void(const Field&)>& fn);
// Calls fn for the field of that name; false when there is none.
bool with_field(Config& config, std::string_view name, const std::function<void(const Field&)>& fn);
std::vector<std::string> field_names(Config& config);

// Text of a leaf, as print() writes it. Children and lists of them give "".
std::string leaf_text(const FieldValue& value);
// Text of any field: leaves, and whole subtrees on several lines.
std::string field_text(const FieldValue& value, int indent);
// A config without the newline at its end; lines after the first are indented.
std::string config_text(const Config& config, int indent);

// "a.b", or "b" below the root; "a[2]".
std::string join_path(const std::string& parent, std::string_view name);
std::string item_path(const std::string& list, std::size_t index);

}  // namespace meshloom::layers
