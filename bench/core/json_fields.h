// Reads the fields of JSON that `meshloom bench` or another program wrote. All throw Error: where, the rule and what was found.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "bench/core/report.h"

namespace meshloom::bench {

using Json = nlohmann::ordered_json;

// An object with the field `schema`, which must have this value.
Json parse_json(std::string_view text, std::string_view schema, const std::string& where);

[[noreturn]] void refuse(const std::string& where, const std::string& rule, const Json& found);

void get(const Json& json, const std::string& where, std::string& value);
void get(const Json& json, const std::string& where, bool& value);
void get(const Json& json, const std::string& where, double& value);        // of at least 0
void get(const Json& json, const std::string& where, int& value);           // of at least 0, at most 2e9
void get(const Json& json, const std::string& where, std::int64_t& value);  // likewise
void get(const Json& json, const std::string& where, std::map<std::string, std::int64_t>& value);

// Leaves `value` as it is where the object has no such field; `required`: then it throws.
template <typename T>
void get_field(const Json& object, const char* name, const std::string& where, T& value,
               bool required = false) {
  if (const auto it = object.find(name); it != object.end())
    get(*it, where + "." + name, value);
  else if (required)
    refuse(where, std::string("must have the field ") + name, object);
}

// The field header, which may be missing.
Header get_header(const Json& file, const std::string& where);

}  // namespace meshloom::bench
