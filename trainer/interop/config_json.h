// Converts between config.json of a Hugging Face model and the config tree, by the tables of family.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "layers/models/causal_lm.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// Finds the family by the file's model_type and converts the fields to a model. Throws Error (WHERE, field
// FIELD: rule; found value) for fields that are missing, malformed, unknown or not supported. Notes a dropout
// that is not imported.
struct ReadConfig {
  const Family* family;
  layers::CausalLM::Config model;
};
ReadConfig read_config_json(const nlohmann::json& json, const std::string& where,
                            const layers::ClassTable& classes, const Note& note);

// Whether a field describes what a model of the family computes.
bool describes_model(const Family& family, const std::string& field);

// Writes the model as `family`, or with "" as the first family that can describe it completely: reading the
// result gives the same config tree, apart from initializers. Throws Error naming what the nearest family
// cannot express.
struct WrittenConfig {
  const Family* family;
  nlohmann::ordered_json json;
};
WrittenConfig write_config_json(const layers::Config& model, std::int64_t sequence, const std::string& family,
                                const layers::ClassTable& classes);

}  // namespace meshloom::trainer
