#include "trainer/execute/agreed_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "trainer/execute/gather_texts.h"

namespace meshloom::trainer {

std::string agreed_error(hal::Transport& transport, const std::string& own, double patience) {
  const std::vector<std::string> all = gather_texts(transport, own, patience);
  const auto has_one = [](const std::string& text) { return !text.empty(); };
  const auto first = std::find_if(all.begin(), all.end(), has_one);
  if (first == all.end()) return "";
  if (std::all_of(all.begin(), all.end(), [&](const std::string& each) { return each == *first; }))
    return *first;
  const auto more = std::count_if(first + 1, all.end(), has_one);
  return transport.name(static_cast<int>(first - all.begin())) + ": " + *first +
         (more > 0 ? fmt::format(" (and {} more rank{})", more, more == 1 ? "" : "s") : "");
}

}  // namespace meshloom::trainer
