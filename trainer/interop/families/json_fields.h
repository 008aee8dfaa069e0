// What readers of config.json ask of its fields.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace meshloom::trainer {

// Null counts as absent: for fields where it does in transformers.
const nlohmann::json* json_field(const nlohmann::json& json, const char* name);
// A finite number above 0; `absent` when there is none. Throws Error (WHERE, field NAME: ...).
double json_number(const nlohmann::json& json, const char* name, const std::string& where,
                   std::optional<double> absent = {});
// An integer from 1 to 2^24.
std::int64_t json_length(const nlohmann::json& value, const char* name, const std::string& where);

}  // namespace meshloom::trainer
