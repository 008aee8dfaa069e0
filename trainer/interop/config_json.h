// config.json of a Hugging Face model <-> the config tree of ours, by the tables of family.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "layers/models/causal_lm.h"
#include "trainer/interop/families/family.h"
#include "trainer/interop/families/note.h"

namespace meshloom::trainer {

// The family that the file's model_type names, and the model that its fields describe. Throws Error (WHERE, field
// FIELD: rule; found value) for what is missing, malformed or not supported here; a field that no table knows is told
// to `note`.
struct ReadConfig {
  const Family* family;
  layers::CausalLM::Config model;
};
ReadConfig read_config_json(const nlohmann::json& json, const std::string& where,
                            const layers::ClassTable& classes, const Note& note);

// Whether a field says what a model of the family computes, so that only the model may decide it.
bool describes_model(const Family& family, const std::string& field);

// The family named `family`, or with "" the first one whose tables describe `model` completely: reading what is
// written gives the same tree, but for how parameters start. Throws Error naming what the nearest cannot say.
struct WrittenConfig {
  const Family* family;
  nlohmann::ordered_json json;
};
WrittenConfig write_config_json(const layers::Config& model, std::int64_t sequence, const std::string& family,
                                const layers::ClassTable& classes);

}  // namespace meshloom::trainer
