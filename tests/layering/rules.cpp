#include "tests/layering/rules.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace meshloom::tests {
namespace {

// Room -> rooms it may include besides itself. tests/, bench/, backends/register.cpp and the program's main see
// everything.
const std::map<std::string, std::set<std::string>> kMayInclude{
    {"hal", {}},
    {"kernels", {"hal"}},
    {"backends", {"kernels", "hal"}},
    {"layers", {"kernels"}},
    {"trainer", {"layers", "kernels", "hal"}},
};
const std::set<std::string> kSeeAll{"backends/register.cpp", "trainer/cli/main.cpp"};
// Of hal, layers may name only what a tensor needs; backends/<b> may see backends/simt but not each other.
const std::set<std::string> kHalForLayers{"hal/dtype.h", "hal/error.h", "hal/suggest.h"};
const std::regex kInclude(R"(^\s*#\s*include\s*"([^"]+)\")");
const std::regex kHardware(
    R"(\b(vulkan|opencl|lavapipe|pocl|backend|workgroup|subgroup|h100|b200|tpu|trainium|gpu|tile|Variant|DeviceInfo)\b)",
    std::regex::icase);
// Not a kernel's.
const std::regex kStdVariant("std::variant|#include <variant>");

std::string room_of(const std::string& path) { return path.substr(0, path.find('/')); }

std::string backend_of(const std::string& path) {
  const std::size_t first = path.find('/'), second = path.find('/', first + 1);
  return second == std::string::npos ? "" : path.substr(first + 1, second - first - 1);
}

std::string listed(const std::set<std::string>& rooms) {
  std::string text;
  for (const std::string& room : rooms) text += (text.empty() ? "" : ", ") + room + "/";
  return text.empty() ? "nothing outside itself" : "only " + text;
}

}  // namespace

Sources read_sources(const std::string& root) {
  Sources sources;
  for (const auto& [room, allowed] : kMayInclude)
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(root) / room)) {
      const std::string extension = entry.path().extension().string();
      if (!entry.is_regular_file() || (extension != ".h" && extension != ".cpp")) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      sources[std::filesystem::relative(entry.path(), root).generic_string()] = text.str();
    }
  return sources;
}

std::vector<std::string> violations(const Sources& sources) {
  std::vector<std::string> found;
  for (const auto& [path, text] : sources) {
    const std::string room = room_of(path);
    const auto rule = kMayInclude.find(room);
    if (rule == kMayInclude.end() || kSeeAll.count(path)) continue;
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      const std::string where = path + ":" + std::to_string(number) + ": ";
      std::smatch match;
      if (std::regex_search(line, match, kInclude)) {
        const std::string target = match[1];
        const std::string other = room_of(target);
        if (target.find('/') == std::string::npos) continue;  // generated or a library's
        if (other == "tests" || other == "bench") {
          found.push_back(where + "nothing may include " + other + "/; found \"" + target + "\"");
        } else if (kMayInclude.count(other) && other != room && !rule->second.count(other) &&
                   !(room == "layers" && kHalForLayers.count(target))) {
          found.push_back(where + room + "/ may include " + listed(rule->second) + "; found \"" + target +
                          "\"");
        } else if (room == "backends" && other == "backends" && backend_of(target) != backend_of(path) &&
                   backend_of(target) != "simt") {
          found.push_back(where + "a backend may include itself and backends/simt/, never another; found \"" +
                          target + "\"");
        } else if (target.starts_with("trainer/serve/") && !path.starts_with("trainer/serve/") &&
                   !path.starts_with("trainer/cli/")) {
          found.push_back(where + "only trainer/cli/ may include trainer/serve/; found \"" + target + "\"");
        }
      } else if (room == "layers" &&
                 std::regex_search(line = std::regex_replace(line, kStdVariant, ""), match, kHardware)) {
        found.push_back(where + "hardware never appears in a layer; found '" + match[1].str() + "'");
      }
    }
  }
  return found;
}

}  // namespace meshloom::tests
