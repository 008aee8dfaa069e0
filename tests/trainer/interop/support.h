// A tiny model that transformers made (make_models.py), imported.
#pragma once

#include <string>
#include <vector>

#include "tests/trainer/run/stored.h"
#include "trainer/config/trainer_config.h"
#include "trainer/interop/import.h"

namespace meshloom::tests {

std::string model_directory(const std::string& name);
std::vector<std::string> model_names();

const kernels::Catalog& catalog();
const layers::ClassTable& classes();
// Imports quietly; what was noted goes to `notes`.
trainer::Imported import_quietly(const std::string& from, const std::string& out,
                                 std::vector<std::string>* notes = nullptr,
                                 const trainer::ImportOptions& options = {});
trainer::TrainerConfig recipe_of(const std::string& checkpoint);

}  // namespace meshloom::tests
