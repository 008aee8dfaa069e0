// Access to the fields of a config one by one, on which all functions over config trees are built.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/config/config.h"

namespace meshloom::layers {

void for_each_field(Config& config, const std::function<void(const Field&)>& fn);
// Calls fn for the field that has this name, or had it formerly. Returns false if there is none.
bool with_field(Config& config, std::string_view name, const std::function<void(const Field&)>& fn);
std::vector<std::string> field_names(Config& config);
// "Stack has no field 'num_layer', did you mean 'num_layers'? (it has num_layers, layer)"
std::string no_such_field(Config& config, std::string_view name);

// The text of a leaf, as print() writes it; "" for children and lists of them.
std::string leaf_text(const FieldValue& value);
// The text of any field; a child is printed with its whole subtree, on several lines.
std::string field_text(const FieldValue& value, int indent);
// The text of a config without a newline at the end; lines after the first are indented.
std::string config_text(const Config& config, int indent);

// "a.b", or "b" below the root; "a[2]".
std::string join_path(const std::string& parent, std::string_view name);
std::string item_path(const std::string& list, std::size_t index);

}  // namespace meshloom::layers
