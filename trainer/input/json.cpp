#include "trainer/input/json.h"

#include <set>
#include <vector>

#include "hal/error.h"

namespace meshloom::trainer {

using Json = nlohmann::json;

Json parse_json(std::string_view text, const std::string& where, const std::string& what, int depth) {
  std::vector<std::set<std::string>> keys;  // per open object
  std::string duplicate;
  int level = 0;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (++level > depth)
        throw Error(where, what + " must not nest deeper than " + std::to_string(depth) + " levels");
      if (event == Event::object_start) keys.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      --level;
      if (event == Event::object_end) keys.pop_back();
    } else if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      duplicate = parsed.get<std::string>();
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception& error) {
    throw Error(where, what + " must be JSON", shown(error.what()));
  }
  if (!duplicate.empty()) throw Error(where, "a name must stand once in " + what, shown(duplicate));
  return json;
}

std::string shown(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 80)) out += c >= 32 && c < 127 ? c : '?';
  return "'" + out + (text.size() > 80 ? "...'" : "'");
}

std::string shown_json(const Json& json) {
  return shown(json.dump(-1, ' ', true, Json::error_handler_t::replace));
}

}  // namespace meshloom::trainer
