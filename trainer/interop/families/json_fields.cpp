#include "trainer/interop/families/json_fields.h"

#include <cmath>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {

using Json = nlohmann::json;

constexpr std::int64_t kMaxLength = 1 << 24;

const Json* json_field(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}

double json_number(const Json& json, const char* name, const std::string& where,
                   std::optional<double> absent) {
  const Json* value = json_field(json, name);
  if (!value && absent) return *absent;
  if (!value) throw Error(where + ", field " + name, "must be present", "none");
  if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0)
    throw Error(where + ", field " + name, "must be a number above 0", shown_json(*value));
  return value->get<double>();
}

std::int64_t json_length(const Json& value, const char* name, const std::string& where) {
  std::int64_t size = 0;
  if (!natural(value, size) || size < 1 || size > kMaxLength)
    throw Error(where + ", field " + name, "must be an integer from 1 to 2^24", shown_json(value));
  return size;
}

}  // namespace meshloom::trainer
