#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/core/report.h"
#include "bench/core/report_fields.h"
#include "hal/error.h"

namespace meshloom::bench {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity, which is the error of a NaN.
constexpr double kHuge = 1e300;
void put(Json& json, const char* name, double value) { json[name] = std::isfinite(value) ? value : kHuge; }
template <typename T>
void put(Json& json, const char* name, const T& value) {
  json[name] = value;
}

[[noreturn]] void refuse(const std::string& where, const std::string& rule, const Json& found) {
  std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  throw Error(where, rule, text);
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
template <typename T>
void whole(const Json& json, const std::string& where, T& value) {
  if (!json.is_number_integer() || json.get<double>() < 0 || json.get<double>() > 2e9)
    refuse(where, "must be a whole number from 0 to 2e9", json);
  value = static_cast<T>(json.get<std::int64_t>());
}
void get(const Json& json, const std::string& where, int& value) { whole(json, where, value); }
void get(const Json& json, const std::string& where, std::int64_t& value) { whole(json, where, value); }
void get(const Json& json, const std::string& where, std::map<std::string, std::int64_t>& value) {
  if (!json.is_object()) refuse(where, "must be an object of whole numbers", json);
  for (const auto& [name, item] : json.items()) get(item, where + "." + name, value[name]);
}

Row parse_row(const Json& json, const std::string& where) {
  if (!json.is_object()) refuse(where, "must be an object", json);
  Row row;
  fields(row, [&](const char* name, auto& value) {
    if (const auto it = json.find(name); it != json.end()) get(*it, where + "." + name, value);
  });
  if (row.op.empty()) throw Error(where, "must have the field op", "none");
  if (row.call.empty() && row.shape.empty())
    throw Error(where, "must have the field call or shape", "neither");
  if (!json.contains("seconds")) throw Error(where, "must have the field seconds", "none");
  return row;
}

}  // namespace

std::string to_json(const Report& report) {
  Json json;
  json["schema"] = kSchema;
  for (const auto& [name, text] : report.header.fields) json["header"][name] = text;
  const Ceilings& c = report.ceilings;
  json["ceilings"] = {{"flops", c.flops},
                      {"bf16_flops", c.bf16_flops},
                      {"max_reached", c.max_reached},
                      {"bytes_per_second", c.bytes_per_second},
                      {"submit_seconds", c.submit_seconds},
                      {"dispatch_seconds", c.dispatch_seconds},
                      {"how", c.how}};
  json["rows"] = Json::array();
  for (const Row& row : report.rows) {
    Json item;
    fields(row, [&](const char* name, const auto& value) { put(item, name, value); });
    json["rows"].push_back(std::move(item));
  }
  json["notes"] = report.notes;
  json["stopped"] = report.stopped;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Report parse_report(std::string_view text, const std::string& where) {
  // Deep nesting would overflow the stack; reports are not nested.
  int depth = 0;
  const auto shallow = [&](int at, Json::parse_event_t, Json&) {
    depth = std::max(depth, at);
    if (at > 16)
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
  if (json["schema"] != kSchema)
    refuse(where + ", schema", "must be \"" + std::string(kSchema) + "\"", json["schema"]);
  if (!json.contains("rows") || !json["rows"].is_array())
    throw Error(where, "must have the list rows", "none");
  Report report;
  if (const auto it = json.find("header"); it != json.end()) {
    if (!it->is_object()) refuse(where + ", header", "must be an object", *it);
    for (const auto& [name, value] : it->items()) {
      std::string field;
      get(value, where + ", header." + name, field);
      report.header.set(name, std::move(field));
    }
  }
  if (const auto it = json.find("ceilings"); it != json.end()) {
    if (!it->is_object()) refuse(where + ", ceilings", "must be an object", *it);
    const auto number = [&](const char* name, double& into) {
      if (it->contains(name)) get((*it)[name], where + ", ceilings." + name, into);
    };
    number("flops", report.ceilings.flops);
    number("bf16_flops", report.ceilings.bf16_flops);
    number("bytes_per_second", report.ceilings.bytes_per_second);
    number("submit_seconds", report.ceilings.submit_seconds);
    number("dispatch_seconds", report.ceilings.dispatch_seconds);
  }
  std::size_t index = 0;
  for (const Json& item : json["rows"])
    report.rows.push_back(parse_row(item, where + ", rows[" + std::to_string(index++) + "]"));
  return report;
}

}  // namespace meshloom::bench
