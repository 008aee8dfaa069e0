#include "trainer/chat/jinja/builtins.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace meshloom::trainer::jinja {
namespace {

constexpr std::array<std::string_view, 9> kUnsupportedFilters{"filesizeformat", "pprint",    "random",
                                                       "striptags",      "urlencode", "urlize",
                                                       "wordwrap",       "wordcount", "xmlattr"};

}  // namespace

Filter filter_named(const std::string& name, bool& known) {
  Filter found = name == "tojson" ? tojson : text_filter(name);
  if (!found) found = sequence_filter(name);
  known = found || std::find(kUnsupportedFilters.begin(), kUnsupportedFilters.end(), name) != kUnsupportedFilters.end();
  return found;
}

}  // namespace meshloom::trainer::jinja
