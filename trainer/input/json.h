// JSON from files that nobody vouches for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// Throws Error (where = `where`) when `what` ("the header") is not JSON, nests deeper than `depth` levels, or has
// an object that names a member twice.
nlohmann::json parse_json(std::string_view text, const std::string& where, const std::string& what, int depth);

// The value of a JSON number that is an integer in [0, 2^63).
bool natural(const nlohmann::json& json, std::int64_t& value);

// Text, or a JSON value, as printable text short enough for a message.
std::string shown(std::string_view text);
std::string shown_json(const nlohmann::json& json);

}  // namespace meshloom::trainer
