// JSON from files that nobody vouches for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "hal/error.h"

namespace meshloom::trainer {

// Throws Error (where = `where`) when `what` ("the header") is not JSON, nests deeper than `depth` levels, or has
// an object that names a member twice.
nlohmann::json parse_json(std::string_view text, const std::string& where, const std::string& what,
                          int depth);
// The same with the members of objects in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where,
                                          const std::string& what, int depth);

// The value of a JSON number that is an integer in [0, 2^63).
template <typename Json>
bool natural(const Json& json, std::int64_t& value) {
  if (!json.is_number_unsigned() || json.template get<std::uint64_t>() > INT64_MAX) return false;
  value = static_cast<std::int64_t>(json.template get<std::uint64_t>());
  return true;
}

// A member of an object that is such a number. Throws Error (where = `where`); nlohmann's own exception where the object
// has no such member.
template <typename Json>
std::int64_t natural_member(const Json& object, const char* name, const std::string& where) {
  const Json& member = object.at(name);
  std::int64_t value = 0;
  if (!natural(member, value))
    throw hal::Error(where, std::string(name) + " must be an integer in [0, 2^63)",
                     member.dump().substr(0, 80));
  return value;
}

// Text, or a JSON value, as printable text short enough for a message.
std::string shown(std::string_view text);
std::string shown_json(const nlohmann::json& json);

}  // namespace meshloom::trainer
