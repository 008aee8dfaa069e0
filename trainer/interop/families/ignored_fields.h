// Fields of config.json that change nothing that a model computes here, whatever its family. What a family
// adds to them stands in its own file (Family::harmless).
#pragma once

#include <string>

#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// Any value is passed over.
bool is_ignored_field(const Family& family, const std::string& name);
// Dropout, which models have here only where a recipe says so.
bool is_dropout_field(const std::string& name);

}  // namespace meshloom::trainer
