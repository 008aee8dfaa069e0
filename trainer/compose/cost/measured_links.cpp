#include "trainer/compose/cost/measured_links.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "hal/cache/disk_cache.h"
#include "hal/error.h"
#include "hal/math.h"
#include "hal/transport/transport.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

constexpr const char* kLinksSchema = "meshloom-links/1";

// Hosts may share a folder.
std::filesystem::path links_file() {
  const std::filesystem::path folder = hal::cache_folder();
  if (folder.empty())
    throw Error("links", "needs a cache folder: MESHLOOM_CACHE_DIR must name one, or HOME must be set",
                "none");
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return folder / "links" / (hal::hash_text(host.data()) + ".json");
}

double link_member(const nlohmann::json& object, const char* name, const std::string& where) {
  const double value = object.at(name).get<double>();
  if (!std::isfinite(value) || value < 0)
    throw Error(where, std::string(name) + " must be a number that is not negative",
                shown_json(object.at(name)));
  return value;
}

}  // namespace

std::map<std::string, MeasuredLink> parse_measured_links(std::string_view text, const std::string& where) {
  constexpr int kDepth = 3;
  const nlohmann::json json = parse_json(text, where, "the file", kDepth);
  std::map<std::string, MeasuredLink> links;
  try {
    if (json.at("schema") != kLinksSchema)
      throw Error(where,
                  std::string("must be ") + kLinksSchema + ", as `meshloom bench collectives` writes it",
                  shown_json(json.at("schema")));
    for (const auto& [kind, item] : json.at("links").items())
      links[kind] = {link_member(item, "alpha_seconds", where), link_member(item, "gap_seconds", where),
                     link_member(item, "bytes_per_second", where), item.at("date").get<std::string>()};
  } catch (const nlohmann::json::exception& error) {
    throw Error(where, "must be a file of links, as `meshloom bench collectives` writes it", error.what());
  }
  return links;
}

std::map<std::string, MeasuredLink> measured_links(std::string* note) {
  if (hal::cache_folder().empty()) return {};
  const std::filesystem::path path = links_file();
  if (std::error_code ignored; !std::filesystem::exists(path, ignored)) return {};
  try {
    const std::string where = "'" + path.string() + "'";
    return parse_measured_links(read_file(path.string(), where), where);
  } catch (const hal::Error& error) {
    if (note) *note = std::string("the measured links cannot be read and are ignored; ") + error.what();
    return {};
  }
}

void save_measured_link(const std::string& kind, const MeasuredLink& link) {
  std::map<std::string, MeasuredLink> links = measured_links();
  links[kind] = link;
  nlohmann::ordered_json json;
  json["schema"] = kLinksSchema;
  for (const auto& [name, each] : links)
    json["links"][name] = {{"alpha_seconds", each.alpha},
                           {"gap_seconds", each.gap},
                           {"bytes_per_second", each.bandwidth},
                           {"date", each.date}};
  const std::filesystem::path target = links_file();
  std::error_code ignored;
  std::filesystem::create_directories(target.parent_path(), ignored);
  write_file(target.string(), json.dump(1) + "\n");
}

hal::NetworkLevel level_of(const MeasuredLink& link) {
  hal::NetworkLevel level;
  level.alpha = link.alpha;
  level.message = link.gap;
  level.bytes_per_second = link.bandwidth > 0 ? link.bandwidth : std::numeric_limits<double>::infinity();
  return level;
}

double predicted_move_seconds(const Plan& plan, const MeasuredLink& link) {
  const hal::NetworkLevel level = level_of(link);
  double sum = 0;
  for (const UpdateStep& part : plan.steps.update)
    for (const Exchange& exchange : plan.steps.at(part.step).exchanges) {
      const MovedBytes& moved = exchange.moved;
      sum += static_cast<double>(part.times) *
             level.seconds(std::max(moved.messages_in, moved.messages_out), std::max(moved.in, moved.out));
    }
  for (const StepAction& action : plan.steps.schedule) {
    if (action.transfer < 0) continue;
    const std::int64_t bytes =
        plan.transfer_bytes(plan.steps.transfers.at(static_cast<std::size_t>(action.transfer)));
    sum += level.seconds(hal::ceil_div(bytes, hal::kMaxMessageBytes), bytes);
  }
  return sum;
}

}  // namespace meshloom::trainer
