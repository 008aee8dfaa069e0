#include "hal/driver.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "embedded_drivers.h"
#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::hal {
namespace {

using Json = nlohmann::ordered_json;

// The limits that are whole numbers, by the names of their fields.
constexpr std::pair<const char*, std::int64_t Limits::*> kBytes[] = {
    {"memory_bytes", &Limits::memory_bytes},
    {"max_allocation_bytes", &Limits::max_allocation_bytes},
    {"max_local_bytes", &Limits::max_local_bytes},
    {"max_parameter_bytes", &Limits::max_parameter_bytes},
    {"offset_alignment", &Limits::offset_alignment}};
constexpr std::pair<const char*, std::int32_t Limits::*> kCounts[] = {
    {"max_workgroup", &Limits::max_workgroup}, {"subgroup", &Limits::subgroup},
    {"min_subgroup", &Limits::min_subgroup},   {"max_subgroup", &Limits::max_subgroup},
    {"max_bindings", &Limits::max_bindings},   {"max_constant_words", &Limits::max_constant_words}};
// These may be absent: 0.
constexpr const char* kOptional[] = {"memory_bytes", "max_allocation_bytes", "max_parameter_bytes",
                                     "min_subgroup", "max_subgroup"};

MatrixShape matrix_shape(const std::string& text, const std::string& where) {
  // "16x16x16 f16->f32"
  MatrixShape shape;
  const std::size_t space = text.find(' '), arrow = text.find("->");
  const auto fail = [&] {
    throw Error(where + ", field 'matrix_shapes'", "must hold shapes such as \"16x16x16 f16->f32\"",
                "'" + text + "'");
  };
  if (space == std::string::npos || arrow == std::string::npos || arrow < space) fail();
  std::array<std::int32_t*, 3> extents{&shape.m, &shape.n, &shape.k};
  std::size_t at = 0;
  for (std::int32_t* extent : extents) {
    for (; at < space && text[at] >= '0' && text[at] <= '9'; ++at) *extent = *extent * 10 + (text[at] - '0');
    if (*extent < 1 || *extent > 1024 || (extent != extents.back() && text[at] != 'x')) fail();
    if (extent != extents.back()) ++at;
  }
  if (at != space) fail();
  shape.in = dtype_from_string(text.substr(space + 1, arrow - space - 1));
  shape.sum = dtype_from_string(text.substr(arrow + 2));
  return shape;
}

class DriverReader {
 public:
  DriverReader(const Json& json, std::string where, std::map<std::string, std::string>& sources)
      : json_(json), where_(std::move(where)), sources_(sources) {
    if (!json.is_object()) fail("", "must be a JSON object", json.type_name());
  }

  [[noreturn]] void fail(const std::string& field, const std::string& rule, const std::string& found) const {
    throw Error(where_ + (field.empty() ? "" : ", field '" + field + "'"), rule, found);
  }
  const Json* find(const char* field) {
    known_.insert(field);
    const auto found = json_.find(field);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& take(const char* field) {
    if (const Json* found = find(field)) return *found;
    fail(field, "must be given", "nothing");
  }
  std::string text(const char* field) {
    const Json& value = take(field);
    if (!value.is_string()) fail(field, "must be a text", value.dump());
    return value.get<std::string>();
  }
  bool flag(const char* field) {
    const Json* value = find(field);
    if (value && !value->is_boolean()) fail(field, "must be true or false", value->dump());
    return value && value->get<bool>();
  }
  std::vector<std::string> texts(const char* field, const Json& value) const {
    if (!value.is_array() ||
        !std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); }))
      fail(field, "must be a list of texts", value.dump());
    return value.get<std::vector<std::string>>();
  }
  // The value of {"value": ..., "source": "..."}.
  const Json& sourced(const char* field, const Json& entry) {
    if (!entry.is_object() || entry.size() != 2 || !entry.contains("value") || !entry.contains("source") ||
        !entry.at("source").is_string() || entry.at("source").get<std::string>().empty())
      fail(field, "must be {\"value\": ..., \"source\": text}", entry.dump());
    sources_[field] = entry.at("source").get<std::string>();
    return entry.at("value");
  }
  template <typename Int>
  Int integer(const char* field, const Json& value) const {
    if (!value.is_number_integer() || value.get<double>() < 0 ||
        value.get<double>() > static_cast<double>(std::numeric_limits<Int>::max()))
      fail(field, "must be a whole number in the field's range", value.dump());
    return value.get<Int>();
  }
  void refuse_unknown() const {
    const std::vector<std::string> known(known_.begin(), known_.end());
    for (const auto& [key, value] : json_.items())
      if (!known_.count(key)) fail(key, "is not a field of a driver" + suggestion(key, known), value.dump());
  }

 private:
  const Json& json_;
  std::string where_;
  std::map<std::string, std::string>& sources_;
  std::set<std::string> known_;
};

void read_limits(const Json& json, const std::string& where, Driver& driver) {
  DriverReader read(json, where + ", limits", driver.sources);
  const auto optional = [](const char* field) {
    return std::any_of(std::begin(kOptional), std::end(kOptional),
                       [&](const char* name) { return std::string_view(name) == field; });
  };
  Limits& limits = driver.device.limits;
  for (const auto& [field, member] : kBytes)
    if (const Json* entry = optional(field) ? read.find(field) : &read.take(field))
      limits.*member = read.integer<std::int64_t>(field, read.sourced(field, *entry));
  for (const auto& [field, member] : kCounts)
    if (const Json* entry = optional(field) ? read.find(field) : &read.take(field))
      limits.*member = read.integer<std::int32_t>(field, read.sourced(field, *entry));
  const Json& groups = read.sourced("max_groups", read.take("max_groups"));
  if (!groups.is_array() || groups.size() != limits.max_groups.size())
    read.fail("max_groups", "must be a list of three numbers", groups.dump());
  for (std::size_t d = 0; d < limits.max_groups.size(); ++d)
    limits.max_groups[d] = read.integer<std::int64_t>("max_groups", groups[d]);
  if (const Json* entry = read.find("allocation_of_memory")) {
    const Json& part = read.sourced("allocation_of_memory", *entry);
    if (!part.is_number() || part.get<double>() <= 0 || part.get<double>() > 1)
      read.fail("allocation_of_memory", "must be a number above 0, and 1 at most", part.dump());
    driver.allocation_of_memory = part.get<double>();
  }
  if (limits.max_allocation_bytes <= 0 && driver.allocation_of_memory <= 0)
    read.fail("max_allocation_bytes", "must be given, or else allocation_of_memory", "neither");
  read.refuse_unknown();
  if (limits.offset_alignment < 1 || limits.max_workgroup < 1 || limits.subgroup < 1)
    read.fail("offset_alignment, max_workgroup and subgroup", "must be at least 1", "0");
}

}  // namespace

Driver parse_driver(std::string_view text, const std::string& where) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw Error(where, "must be JSON", error.what());
  }
  Driver driver;
  DriverReader read(json, where, driver.sources);
  DeviceInfo& device = driver.device;
  driver.name = read.text("name");
  device.backend = read.text("backend");
  if (const Json* profiles = read.find("profiles")) driver.profiles = read.texts("profiles", *profiles);
  if (read.find("device")) device.name = read.text("device");
  device.vendor = read.text("vendor");
  device.driver = read.text("driver");
  device.api = read.text("api");
  device.is_cpu = read.flag("is_cpu");
  device.timestamps = read.flag("timestamps");
  device.host_visible = read.flag("host_visible");
  read_limits(read.take("limits"), where, driver);
  device.features = read.texts("features", read.sourced("features", read.take("features")));
  if (const Json* shapes = read.find("matrix_shapes"))
    for (const std::string& shape : read.texts("matrix_shapes", read.sourced("matrix_shapes", *shapes)))
      device.limits.matrix_shapes.push_back(matrix_shape(shape, where));
  if (const Json* results = read.find("self_tests")) {
    if (!results->is_object()) read.fail("self_tests", "must be an object of texts", results->dump());
    for (const auto& [kernel, found] : results->items()) {
      if (!found.is_string()) read.fail("self_tests", "must be an object of texts", found.dump());
      device.self_test_results[kernel] = found.get<std::string>();
    }
  }
  if (const Json* profile = read.find("profile")) device.profile = parse_profile(profile->dump(), where);
  read.refuse_unknown();
  return driver;
}

std::string describe_device(const DeviceInfo& device) {
  constexpr const char* kSource = "reported by the device";
  const auto sourced = [&](auto value) { return Json{{"value", value}, {"source", kSource}}; };
  Json json;
  json["name"] = device.id;
  json["backend"] = device.backend;
  json["device"] = device.name;
  json["vendor"] = device.vendor;
  json["driver"] = device.driver;
  json["api"] = device.api;
  json["is_cpu"] = device.is_cpu;
  json["timestamps"] = device.timestamps;
  json["host_visible"] = device.host_visible;
  Json& limits = json["limits"] = Json::object();
  for (const auto& [field, member] : kBytes) limits[field] = sourced(device.limits.*member);
  for (const auto& [field, member] : kCounts) limits[field] = sourced(device.limits.*member);
  limits["max_groups"] = sourced(device.limits.max_groups);
  // A limit of 0 is none.
  if (device.limits.max_allocation_bytes <= 0) limits["allocation_of_memory"] = sourced(1.0);
  json["features"] = sourced(device.features);
  std::vector<std::string> shapes;
  for (const MatrixShape& shape : device.limits.matrix_shapes) shapes.push_back(to_string(shape));
  if (!shapes.empty()) json["matrix_shapes"] = sourced(shapes);
  if (!device.self_test_results.empty()) json["self_tests"] = device.self_test_results;
  json["profile"] = Json::parse(to_json(device.profile));
  return json.dump(2) + "\n";
}

const std::vector<Driver>& shipped_drivers() {
  static const std::vector<Driver> drivers = [] {
    std::vector<Driver> all;
    for (const embedded::File& file : embedded::drivers())
      all.push_back(parse_driver(file.text, "hal/drivers/" + std::string(file.name)));
    std::sort(all.begin(), all.end(), [](const Driver& a, const Driver& b) { return a.name < b.name; });
    return all;
  }();
  return drivers;
}

const Driver* find_driver(std::string_view name) {
  for (const Driver& driver : shipped_drivers())
    if (driver.name == name) return &driver;
  return nullptr;
}

const Driver& driver_of(std::string_view backend, std::string_view profile) {
  const Driver* generic = nullptr;
  for (const Driver& driver : shipped_drivers()) {
    if (driver.device.backend != backend) continue;
    if (std::find(driver.profiles.begin(), driver.profiles.end(), profile) != driver.profiles.end())
      return driver;
    if (driver.name == std::string(backend) + "-" + std::string(kGenericDriver)) generic = &driver;
  }
  if (generic) return *generic;
  throw Error("driver of backend '" + std::string(backend) + "'", "must be one of hal/drivers/", "none");
}

DeviceInfo planned_device(const Driver& driver, const Profile& profile) {
  DeviceInfo info = driver.device;
  info.computes = false;
  info.profile = profile;
  if (info.name.empty()) info.name = profile.product;
  Limits& limits = info.limits;
  const bool own_memory = limits.memory_bytes > 0;
  if (!own_memory) limits.memory_bytes = profile.memory_bytes;
  const auto part =
      static_cast<std::int64_t>(driver.allocation_of_memory * static_cast<double>(limits.memory_bytes));
  if (limits.max_allocation_bytes <= 0) limits.max_allocation_bytes = part;
  if (!own_memory) limits.max_allocation_bytes = std::min(limits.max_allocation_bytes, limits.memory_bytes);
  return info;
}

}  // namespace meshloom::hal
