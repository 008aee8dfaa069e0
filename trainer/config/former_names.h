// Names that were replaced by other ones. Recipes, checkpoints, mesh rules and commands that use them still work; the
// program itself prints current names only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "layers/config/config.h"

namespace meshloom::trainer {

struct FormerName {
  enum class Kind : std::uint8_t { config_class, op };

  Kind kind;
  std::string_view old_name, current;
};

// All former names, from one table in former_names.cpp. (The former name of a field is given where the field is declared,
// by formerly() in layers/config/about.h.)
std::span<const FormerName> former_names();

// The current name: `name` itself unless it is a former name of this kind.
std::string_view current_name(FormerName::Kind kind, std::string_view name);

// The pattern of a kernel rule's op with every former name of an op in it replaced: "{take,put}" -> "{gather,scatter_add}".
std::string current_op_pattern(std::string_view pattern);

// Lets text name the classes of `classes`, which are all that recipes may contain, by their former names.
void add_former_class_names(layers::ClassTable& classes);

}  // namespace meshloom::trainer
