// The fields of config.json that say where tokens stand: rotary frequencies and the longest sequence. Their
// names and nesting changed over the years; every form is read, the one that the most versions of
// transformers read is written.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "layers/config/config.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// Names of the fields that are read here.
bool is_rotary_field(const std::string& name);

// Sets the positions of the attention and the model's SequenceLimit, which it returns, as transformers 5.23
// reads the fields. Throws Error.
std::int64_t read_rotary(const nlohmann::json& json, const std::string& where, const Family& family,
                         layers::Config& model, const layers::ClassTable& classes);
void write_rotary(const layers::Config& model, std::int64_t sequence, nlohmann::ordered_json& json);

}  // namespace meshloom::trainer
