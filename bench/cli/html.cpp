#include "bench/cli/html.h"

#include "embedded_bench_pages.h"
#include "hal/error.h"

namespace meshloom::bench {

std::string safe_in_script(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '<' ? "\\u003c" : std::string(1, c);
  return out;
}

std::string to_html(const Report& report) {
  constexpr std::string_view kPlace = "/*REPORT*/null";
  for (const embedded::File& file : embedded::bench_pages()) {
    if (file.name != "page.html") continue;
    std::string page(file.text);
    page.replace(page.find(kPlace), kPlace.size(), safe_in_script(to_json(report)));
    return page;
  }
  throw Error("bench", "the page must be built in", "none");
}

}  // namespace meshloom::bench
