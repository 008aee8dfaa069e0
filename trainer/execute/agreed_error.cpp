#include "trainer/execute/agreed_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "trainer/execute/exchange.h"

namespace meshloom::trainer {

std::string agreed_error(hal::Transport& transport, const std::string& own, double patience) {
  using Text = std::array<char, 2048>;  // ends with a zero
  Text mine{};
  std::copy_n(own.begin(), std::min(own.size(), mine.size() - 1), mine.begin());
  std::vector<Text> all(static_cast<std::size_t>(transport.size()));
  const std::vector<std::int64_t> sizes(all.size(), sizeof(Text));
  const std::span<std::byte> tensors[] = {std::as_writable_bytes(std::span(mine)),
                                          std::as_writable_bytes(std::span(all))};
  exchange(transport, all_ranks(transport), kernels::collective::all_gather(sizes, transport.rank()), tensors,
           {0, "agreed_error", "the job's beginning"}, patience);
  const auto has_one = [](const Text& text) { return text[0] != 0; };
  const auto first = std::find_if(all.begin(), all.end(), has_one);
  if (first == all.end()) return "";
  const std::string text(first->data());
  if (std::all_of(all.begin(), all.end(), [&](const Text& each) { return each == *first; })) return text;
  const auto more = std::count_if(first + 1, all.end(), has_one);
  return transport.name(static_cast<int>(first - all.begin())) + ": " + text +
         (more > 0 ? fmt::format(" (and {} more rank{})", more, more == 1 ? "" : "s") : "");
}

}  // namespace meshloom::trainer
