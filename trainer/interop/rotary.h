// The fields of config.json that say where tokens stand: rotary frequencies, the longest sequence, and the window
// that attention may be limited to. Their names and nesting changed over the years; every form is read, the one
// that the most versions of transformers read is written.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "layers/config/config.h"

namespace meshloom::trainer {

// Names of the fields that are read here.
bool is_rotary_field(const std::string& name);

// Sets positions and mask of the attention and the model's SequenceLimit. A model that has a window in some of its
// layers only is limited to sequences on which it makes no difference, and `note` hears of it. Throws Error.
void read_rotary(const nlohmann::json& json, const std::string& where, layers::Config& model,
                 const layers::ClassTable& classes, const std::function<void(const std::string&)>& note);
void write_rotary(const layers::Config& model, std::int64_t sequence, nlohmann::ordered_json& json);

}  // namespace meshloom::trainer
