#include <cmath>

#include "bench/core/json_fields.h"
#include "bench/core/report.h"
#include "bench/core/report_fields.h"
#include "hal/error.h"

namespace meshloom::bench {
namespace {

// JSON has no infinity, which is the error of a NaN.
constexpr double kHuge = 1e300;
void put(Json& json, const char* name, double value) { json[name] = std::isfinite(value) ? value : kHuge; }
template <typename T>
void put(Json& json, const char* name, const T& value) {
  json[name] = value;
}

Row parse_row(const Json& json, const std::string& where) {
  if (!json.is_object()) refuse(where, "must be an object", json);
  Row row;
  fields(row, [&](const char* name, auto& value) { get_field(json, name, where, value); });
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
  const Json json = parse_json(text, kSchema, where);
  if (!json.contains("rows") || !json["rows"].is_array())
    throw Error(where, "must have the list rows", "none");
  Report report;
  report.header = get_header(json, where);
  if (const auto it = json.find("ceilings"); it != json.end()) {
    const std::string there = where + ", ceilings";
    if (!it->is_object()) refuse(there, "must be an object", *it);
    Ceilings& c = report.ceilings;
    get_field(*it, "flops", there, c.flops);
    get_field(*it, "bf16_flops", there, c.bf16_flops);
    get_field(*it, "bytes_per_second", there, c.bytes_per_second);
    get_field(*it, "submit_seconds", there, c.submit_seconds);
    get_field(*it, "dispatch_seconds", there, c.dispatch_seconds);
  }
  std::size_t index = 0;
  for (const Json& item : json["rows"])
    report.rows.push_back(parse_row(item, where + ", rows[" + std::to_string(index++) + "]"));
  return report;
}

}  // namespace meshloom::bench
