#include "trainer/input/json.h"

#include <set>
#include <vector>

#include "hal/error.h"

namespace meshloom::trainer {

using Json = nlohmann::json;

namespace {

std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  for (char c : text.substr(0, most)) out += c >= 32 && c < 127 ? c : '?';
  return "'" + out + (text.size() > most ? "...'" : "'");
}

template <typename Json>
Json parsed_json(std::string_view text, const std::string& where, const std::string& what, int depth) {
  std::vector<std::set<std::string>> keys;  // per open object
  std::string duplicate;
  int level = 0;
  const auto watch = [&](int, typename Json::parse_event_t event, Json& parsed) {
    using Event = typename Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (++level > depth)
        throw Error(where, what + " must not nest deeper than " + std::to_string(depth) + " levels");
      if (event == Event::object_start) keys.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      --level;
      if (event == Event::object_end) keys.pop_back();
    } else if (event == Event::key && !keys.back().insert(parsed.template get<std::string>()).second) {
      duplicate = parsed.template get<std::string>();
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), watch);
  } catch (const typename Json::exception& error) {
    std::string_view reason = error.what();  // behind the number of the exception
    if (const std::size_t end = reason.find("] "); end != std::string_view::npos) reason.remove_prefix(end + 2);
    throw Error(where, what + " must be JSON", printable(reason, 200));
  }
  if (!duplicate.empty()) throw Error(where, "a name must stand once in " + what, shown(duplicate));
  return json;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, const std::string& what, int depth) {
  return parsed_json<Json>(text, where, what, depth);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where, const std::string& what,
                                          int depth) {
  return parsed_json<nlohmann::ordered_json>(text, where, what, depth);
}

std::string shown(std::string_view text) { return printable(text, 80); }

std::string shown_json(const Json& json) {
  return shown(json.dump(-1, ' ', true, Json::error_handler_t::replace));
}

}  // namespace meshloom::trainer
