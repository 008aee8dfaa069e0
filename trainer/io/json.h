// Parses JSON from untrusted files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "hal/error.h"

namespace meshloom::trainer {

// Throws Error (where = `where`) when the text, which messages call `what` ("the header"), is not JSON, is
// nested deeper than `depth` levels, or has an object that names a member twice.
nlohmann::json parse_json(std::string_view text, const std::string& where, const std::string& what,
                          int depth);
// The same, but objects keep the order of their members.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where,
                                          const std::string& what, int depth);

// Stores the value of a JSON integer in [0, 2^63) and returns true; false for all else.
template <typename Json>
bool natural(const Json& json, std::int64_t& value) {
  if (!json.is_number_unsigned() || json.template get<std::uint64_t>() > INT64_MAX) return false;
  value = static_cast<std::int64_t>(json.template get<std::uint64_t>());
  return true;
}

// The value of a member that must be such an integer. Throws Error (where = `where`), or nlohmann's own
// exception when the object has no such member.
template <typename Json>
std::int64_t natural_member(const Json& object, const char* name, const std::string& where) {
  const Json& member = object.at(name);
  std::int64_t value = 0;
  if (!natural(member, value))
    throw hal::Error(where, std::string(name) + " must be an integer in [0, 2^63)",
                     member.dump().substr(0, 80));
  return value;
}

// A text or a JSON value as printable text that is short enough for a message.
std::string shown(std::string_view text);
std::string shown_json(const nlohmann::json& json);

}  // namespace meshloom::trainer
