#include "bench/core/json_fields.h"

#include "hal/error.h"

namespace meshloom::bench {
namespace {

constexpr int kMaxDepth = 16;  // deep nesting would overflow the stack; reports are not nested

template <typename T>
void whole(const Json& json, const std::string& where, T& value) {
  if (!json.is_number_integer() || json.get<double>() < 0 || json.get<double>() > 2e9)
    refuse(where, "must be a whole number from 0 to 2e9", json);
  value = static_cast<T>(json.get<std::int64_t>());
}

}  // namespace

void refuse(const std::string& where, const std::string& rule, const Json& found) {
  std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  throw Error(where, rule, text);
}

Json parse_json(std::string_view text, std::string_view schema, const std::string& where) {
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth)
      throw Error(where, "must be written by `meshloom bench --json`", "more than 16 levels of nesting");
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, shallow);
  } catch (const Json::exception& error) {
    std::string what = error.what();
    for (char& c : what)
      if (static_cast<unsigned char>(c) < 32) c = ' ';
    throw Error(where, "must be JSON", what);
  }
  if (!json.is_object() || !json.contains("schema"))
    throw Error(where, "must be an object with the field schema, as `meshloom bench --json` writes", "none");
  if (json["schema"] != schema)
    refuse(where + ", schema", "must be \"" + std::string(schema) + "\"", json["schema"]);
  return json;
}

void get(const Json& json, const std::string& where, std::string& value) {
  if (!json.is_string()) refuse(where, "must be a text", json);
  value = json.get<std::string>();
}
void get(const Json& json, const std::string& where, bool& value) {
  if (!json.is_boolean()) refuse(where, "must be true or false", json);
  value = json.get<bool>();
}
void get(const Json& json, const std::string& where, double& value) {
  if (!json.is_number() || !(json.get<double>() >= 0)) refuse(where, "must be a number of at least 0", json);
  value = json.get<double>();
}
void get(const Json& json, const std::string& where, int& value) { whole(json, where, value); }
void get(const Json& json, const std::string& where, std::int64_t& value) { whole(json, where, value); }
void get(const Json& json, const std::string& where, std::map<std::string, std::int64_t>& value) {
  if (!json.is_object()) refuse(where, "must be an object of whole numbers", json);
  for (const auto& [name, item] : json.items()) get(item, where + "." + name, value[name]);
}

Header get_header(const Json& file, const std::string& where) {
  Header header;
  const auto it = file.find("header");
  if (it == file.end()) return header;
  if (!it->is_object()) refuse(where + ", header", "must be an object", *it);
  for (const auto& [name, value] : it->items()) {
    std::string text;
    get(value, where + ", header." + name, text);
    header.set(name, std::move(text));
  }
  return header;
}

}  // namespace meshloom::bench
