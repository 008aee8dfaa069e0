// Reads single fields of config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace meshloom::trainer {

// The field, or nullptr when it is absent or null: for fields where transformers treats null as absent.
const nlohmann::json* json_field(const nlohmann::json& json, const char* name);
// A finite number above 0, or `absent` when there is no such field. Throws Error (WHERE, field NAME: ...).
double json_number(const nlohmann::json& json, const char* name, const std::string& where,
                   std::optional<double> absent = {});
// An integer from 1 to 2^24.
std::int64_t json_length(const nlohmann::json& value, const char* name, const std::string& where);

}  // namespace meshloom::trainer
