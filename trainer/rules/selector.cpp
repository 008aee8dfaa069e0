#include "trainer/rules/selector.h"

#include <charconv>

#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::trainer {

std::string to_string(const Selector& selector) {
  return selector.backend + (selector.as ? "-as-" : "-") + selector.profile + "-" +
         std::to_string(selector.devices);
}

Selector parse_selector(std::string_view text, const std::vector<std::string>& backends) {
  const std::string where = "selector '" + std::string(text.substr(0, 200)) + "'";
  constexpr const char* kRule = "must be BACKEND-PROFILE-N or BACKEND-as-PROFILE-N";
  const std::size_t first = text.find('-'), last = text.rfind('-');
  if (first == std::string_view::npos || last == first || first == 0 || text.size() > 200)
    throw Error(where, kRule);
  Selector selector;
  selector.backend = text.substr(0, first);
  const std::string_view digits = text.substr(last + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), selector.devices);
  if (error != std::errc{} || end != digits.data() + digits.size() || selector.devices < 1)
    throw Error(where, std::string(kRule) + " with N, the number of devices, at least 1",
                "'" + std::string(digits) + "'");
  std::string_view profile = text.substr(first + 1, last - first - 1);
  if (profile.starts_with("as-")) {
    selector.as = true;
    profile.remove_prefix(3);
  }
  if (profile.empty() || profile == "as") throw Error(where, kRule, "no profile");
  selector.profile = profile;
  std::string known;
  for (const std::string& backend : backends) {
    if (backend == selector.backend) return selector;
    known += (known.empty() ? "" : ", ") + backend;
  }
  throw Error(
      where, "the backend must be one of those built: " + known + hal::suggestion(selector.backend, backends),
      "'" + selector.backend + "'");
}

}  // namespace meshloom::trainer
