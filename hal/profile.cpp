#include "hal/profile.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "embedded_profiles.h"
#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::hal {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<ProfileKind, std::string_view> kKinds[] = {{ProfileKind::host, "host"},
                                                               {ProfileKind::gpu, "gpu"},
                                                               {ProfileKind::tpu, "tpu"},
                                                               {ProfileKind::trainium, "trainium"}};

// Reads one profile object, and records which fields were read, so that unknown ones can be refused.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw Error(where_, "a profile must be a JSON object", json.type_name());
  }

  std::string text(const char* field) {
    const Json& value = take(field);
    if (!value.is_string()) fail(field, "must be a text", value.dump());
    return value.get<std::string>();
  }

  // A number is {"value": x, "source": "..."}; an absent optional one is 0.
  double number(const char* field, bool required = true) {
    if (!json_.contains(field)) {
      if (required) fail(field, "must be given", "nothing");
      return 0;
    }
    return sourced(field, take(field));
  }

  template <typename Int>
  Int integer(const char* field, bool required = true) {
    const double value = number(field, required);
    if (value != static_cast<double>(static_cast<std::int64_t>(value)) ||
        value > static_cast<double>(std::numeric_limits<Int>::max()))
      fail(field, "must be an integer in the field's range", std::to_string(value));
    return static_cast<Int>(value);
  }

  const Json& take(const char* field) {
    if (!json_.contains(field)) fail(field, "must be given", "nothing");
    taken_.insert(field);
    return json_.at(field);
  }

  bool has(const char* field) const { return json_.contains(field); }

  double sourced(const std::string& field, const Json& entry) {
    if (!entry.is_object() || !entry.contains("value") || !entry.at("value").is_number() ||
        !entry.contains("source") || !entry.at("source").is_string() ||
        entry.at("source").get<std::string>().empty())
      fail(field, "must be {\"value\": number, \"source\": text}", entry.dump());
    const double value = entry.at("value").get<double>();
    if (!(value >= 0 && value < 1e30))
      fail(field, "must be a number of at least 0", entry.at("value").dump());
    sources[field] = entry.at("source").get<std::string>();
    return value;
  }

  void refuse_unknown() const {
    const std::vector<std::string> known(taken_.begin(), taken_.end());
    for (const auto& [key, value] : json_.items())
      if (!taken_.count(key)) fail(key, "is not a field of a profile" + suggestion(key, known), value.dump());
  }

  [[noreturn]] void fail(const std::string& field, const std::string& rule, const std::string& found) const {
    throw Error(where_ + ", field '" + field + "'", rule, found);
  }

  std::map<std::string, std::string> sources;

 private:
  const Json& json_;
  std::string where_;
  std::set<std::string> taken_;
};

}  // namespace

std::string_view to_string(ProfileKind kind) {
  for (const auto& [value, name] : kKinds)
    if (value == kind) return name;
  return "?";
}

ProfileKind profile_kind_from_string(std::string_view text) {
  for (const auto& [value, name] : kKinds)
    if (name == text) return value;
  throw Error("profile kind", "must be host, gpu, tpu or trainium", "'" + std::string(text) + "'");
}

double Profile::flops(DType dtype) const {
  const auto it = peak_flops.find(dtype);
  return it == peak_flops.end() ? 0 : it->second;
}

double peak_flops(const Profile& profile, DType dtype) {
  const double peak = profile.flops(dtype);
  return peak > 0 ? peak : profile.flops(DType::f32);
}

Profile parse_profile(std::string_view text, const std::string& where) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw Error(where, "must be JSON", error.what());
  }
  Reader read(json, where);
  Profile profile;
  profile.name = read.text("name");
  profile.product = read.text("product");
  profile.kind = profile_kind_from_string(read.text("kind"));
  if (read.has("isa")) profile.isa = read.text("isa");
  profile.memory_bytes = read.integer<std::int64_t>("memory_bytes");
  profile.memory_bytes_per_second = read.number("memory_bytes_per_second");
  profile.cores = read.integer<std::int32_t>("cores");
  profile.scratch_bytes = read.integer<std::int64_t>("scratch_bytes");
  profile.accumulator_bytes = read.integer<std::int64_t>("accumulator_bytes", false);
  profile.accumulator_banks = read.integer<std::int32_t>("accumulator_banks", false);
  profile.partitions = read.integer<std::int32_t>("partitions", false);
  profile.lanes = read.integer<std::int32_t>("lanes");
  profile.max_workgroup = read.integer<std::int32_t>("max_workgroup", false);
  profile.matrix_tile.m = read.integer<std::int32_t>("matrix_tile_m", false);
  profile.matrix_tile.n = read.integer<std::int32_t>("matrix_tile_n", false);
  profile.matrix_tile.k = read.integer<std::int32_t>("matrix_tile_k", false);
  const Json& peaks = read.take("peak_flops");
  if (!peaks.is_object() || peaks.empty())
    read.fail("peak_flops", "must hold at least one dtype", peaks.dump());
  for (const auto& [dtype, entry] : peaks.items())
    profile.peak_flops[dtype_from_string(dtype)] = read.sourced("peak_flops." + dtype, entry);
  if (read.has("links")) {
    const Json& links = read.take("links");
    if (!links.is_object()) read.fail("links", "must be an object of links by name", links.dump());
    for (const auto& [name, entry] : links.items())
      profile.links.push_back({name, read.sourced("links." + name, entry)});
  }
  for (const char* optional : {"accumulator_bytes", "accumulator_banks", "partitions", "max_workgroup",
                               "matrix_tile_m", "matrix_tile_n", "matrix_tile_k", "links"})
    if (read.has(optional)) read.take(optional);
  for (const char* field : {"memory_bytes", "memory_bytes_per_second", "cores", "scratch_bytes", "lanes"})
    read.take(field);
  read.refuse_unknown();
  if (profile.memory_bytes <= 0)
    read.fail("memory_bytes", "must be above 0", std::to_string(profile.memory_bytes));
  profile.sources = std::move(read.sources);
  return profile;
}

std::string to_json(const Profile& profile) {
  Json json;
  const auto put = [&](Json& into, const std::string& field, const std::string& key, auto value) {
    if (value == 0) return;
    into[field]["value"] = value;
    const auto source = profile.sources.find(key);
    into[field]["source"] = source == profile.sources.end() ? "reported by the device" : source->second;
  };
  json["name"] = profile.name;
  json["product"] = profile.product;
  json["kind"] = to_string(profile.kind);
  if (!profile.isa.empty()) json["isa"] = profile.isa;
  put(json, "memory_bytes", "memory_bytes", profile.memory_bytes);
  put(json, "memory_bytes_per_second", "memory_bytes_per_second", profile.memory_bytes_per_second);
  put(json, "cores", "cores", profile.cores);
  put(json, "scratch_bytes", "scratch_bytes", profile.scratch_bytes);
  put(json, "accumulator_bytes", "accumulator_bytes", profile.accumulator_bytes);
  put(json, "accumulator_banks", "accumulator_banks", profile.accumulator_banks);
  put(json, "partitions", "partitions", profile.partitions);
  put(json, "lanes", "lanes", profile.lanes);
  put(json, "max_workgroup", "max_workgroup", profile.max_workgroup);
  put(json, "matrix_tile_m", "matrix_tile_m", profile.matrix_tile.m);
  put(json, "matrix_tile_n", "matrix_tile_n", profile.matrix_tile.n);
  put(json, "matrix_tile_k", "matrix_tile_k", profile.matrix_tile.k);
  for (const auto& [dtype, flops] : profile.peak_flops) {
    const std::string name(to_string(dtype));
    put(json["peak_flops"], name, "peak_flops." + name, flops);
  }
  for (const Link& link : profile.links)
    put(json["links"], link.name, "links." + link.name, link.bytes_per_second);
  return json.dump(2);
}

const std::vector<Profile>& shipped_profiles() {
  static const std::vector<Profile> profiles = [] {
    std::vector<Profile> all;
    for (const embedded::File& file : embedded::profiles())
      all.push_back(parse_profile(file.text, "hal/profiles/" + std::string(file.name)));
    std::sort(all.begin(), all.end(), [](const Profile& a, const Profile& b) { return a.name < b.name; });
    return all;
  }();
  return profiles;
}

const Profile& find_profile(std::string_view name) {
  std::vector<std::string> names;
  for (const Profile& profile : shipped_profiles()) {
    if (profile.name == name) return profile;
    names.push_back(profile.name);
  }
  throw Error("profile '" + std::string(name) + "'",
              "must be one of " + join(names) + suggestion(name, names), "no such profile");
}

}  // namespace meshloom::hal
