// Fields of config.json that do not change what a model computes here. Those of single families are in their
// own files (Family::ignored_fields).
#pragma once

#include <string>

#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// Whether the field is ignored, whatever its value.
bool is_ignored_field(const Family& family, const std::string& name);
// Whether the field is a dropout rate; imported models have dropout only when a recipe adds it.
bool is_dropout_field(const std::string& name);

}  // namespace meshloom::trainer
