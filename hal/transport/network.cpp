#include "hal/transport/network.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "embedded_networks.h"
#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::hal {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCommodity = "ethernet-10g";

void require_fields(const Json& json, const std::vector<std::string>& fields, const std::string& where) {
  if (!json.is_object()) throw Error(where, "must be a JSON object", json.type_name());
  for (const std::string& field : fields)
    if (!json.contains(field)) throw Error(where + ", field '" + field + "'", "must be given", "nothing");
  for (const auto& [key, value] : json.items())
    if (std::find(fields.begin(), fields.end(), key) == fields.end())
      throw Error(where + ", field '" + key + "'", "must be a field of a network" + suggestion(key, fields),
                  value.dump());
}

double sourced(const Json& json, const char* field, const std::string& where, NetworkLevel& level) {
  const Json& entry = json.at(field);
  const std::string here = where + ", field '" + field + "'";
  if (!entry.is_object() || !entry.contains("value") || !entry.at("value").is_number() ||
      !entry.contains("source") || !entry.at("source").is_string() ||
      entry.at("source").get<std::string>().empty())
    throw Error(here, "must be {\"value\": number, \"source\": text}", entry.dump());
  const auto value = entry.at("value").get<double>();
  if (!(value > 0 && value < 1e30)) throw Error(here, "must be a number above 0", entry.at("value").dump());
  level.sources[field] = entry.at("source").get<std::string>();
  return value;
}

}  // namespace

double NetworkLevel::seconds(std::int64_t messages, std::int64_t bytes) const {
  if (messages == 0) return 0;
  return alpha + static_cast<double>(messages - 1) * message + static_cast<double>(bytes) / bytes_per_second;
}

std::size_t Network::level_between(std::int64_t a, std::int64_t b) const {
  std::size_t level = 0;
  while (level + 1 < levels.size() && a / levels[level].ranks != b / levels[level].ranks) ++level;
  return level;
}

Network parse_network(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw Error(where, "must be JSON", std::string(text.substr(0, 40)));
  require_fields(json, {"name", "about", "profiles", "levels"}, where);
  Network network;
  try {
    network.name = json.at("name").get<std::string>();
    network.about = json.at("about").get<std::string>();
    network.profiles = json.at("profiles").get<std::vector<std::string>>();
    std::int64_t inner = 1;
    for (const Json& item : json.at("levels")) {
      const std::string here = where + ", level " + std::to_string(network.levels.size());
      require_fields(item, {"name", "ranks", "alpha_seconds", "message_seconds", "bytes_per_second"}, here);
      NetworkLevel level;
      level.name = item.at("name").get<std::string>();
      level.ranks = item.at("ranks").get<std::int64_t>();
      const bool last = network.levels.size() + 1 == json.at("levels").size();
      if (last ? level.ranks != 0 : level.ranks <= inner || level.ranks % inner != 0)
        throw Error(here + ", field 'ranks'",
                    last ? "must be 0, which is all, of the last level"
                         : "must be a multiple of those of the level inside",
                    std::to_string(level.ranks));
      inner = level.ranks;
      level.alpha = sourced(item, "alpha_seconds", here, level);
      level.message = sourced(item, "message_seconds", here, level);
      level.bytes_per_second = sourced(item, "bytes_per_second", here, level);
      network.levels.push_back(std::move(level));
    }
  } catch (const Json::exception& error) {
    throw Error(where, "must be a network", error.what());
  }
  if (network.levels.empty()) throw Error(where + ", field 'levels'", "must have at least one", "none");
  return network;
}

const std::vector<Network>& shipped_networks() {
  static const std::vector<Network> all = [] {
    std::vector<Network> parsed;
    for (const embedded::File& file : embedded::networks())
      parsed.push_back(parse_network(file.text, "network '" + std::string(file.name) + "' in the program"));
    std::sort(parsed.begin(), parsed.end(),
              [](const Network& a, const Network& b) { return a.name < b.name; });
    return parsed;
  }();
  return all;
}

const Network& find_network(std::string_view name) {
  std::vector<std::string> names;
  for (const Network& network : shipped_networks()) {
    if (network.name == name) return network;
    names.push_back(network.name);
  }
  throw Error("network '" + std::string(name) + "'",
              "must be one of " + join(names) + suggestion(std::string(name), names));
}

const Network& network_of_profile(std::string_view profile) {
  for (const Network& network : shipped_networks())
    if (std::find(network.profiles.begin(), network.profiles.end(), profile) != network.profiles.end())
      return network;
  return find_network(kCommodity);
}

}  // namespace meshloom::hal
