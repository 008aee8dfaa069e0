#include "trainer/inference/prompt_lookup.h"

#include <algorithm>

namespace meshloom::trainer {
namespace {

constexpr std::int64_t kMaxMatch = 16;  // no longer match is looked for

}  // namespace

std::vector<std::int32_t> prompt_lookup(std::span<const std::int32_t> tokens, std::int64_t most) {
  const auto size = static_cast<std::int64_t>(tokens.size());
  const auto at = [&](std::int64_t index) { return tokens[static_cast<std::size_t>(index)]; };
  std::int64_t best = 0, follows = size;
  for (std::int64_t end = size - 1; end >= kMinMatch && best < kMaxMatch; --end) {
    std::int64_t match = 0;
    while (match < std::min(end, kMaxMatch) && at(end - 1 - match) == at(size - 1 - match)) ++match;
    if (match >= kMinMatch && match > best) best = match, follows = end;
  }
  std::vector<std::int32_t> proposed;
  if (best == 0) return proposed;
  // Beyond the end it goes on with what it has proposed, as text does that repeats itself over and over.
  for (std::int64_t i = 0; i < most; ++i)
    proposed.push_back(follows + i < size ? at(follows + i)
                                          : proposed[static_cast<std::size_t>(follows + i - size)]);
  return proposed;
}

std::vector<std::vector<std::int32_t>> PromptLookup::propose(std::span<const DraftRequest> requests,
                                                             std::int64_t budget) {
  std::vector<std::vector<std::int32_t>> proposed;
  for (const DraftRequest& request : requests) {
    proposed.push_back(prompt_lookup(request.tokens, std::min(request.most, budget)));
    budget -= static_cast<std::int64_t>(proposed.back().size());
  }
  return proposed;
}

}  // namespace meshloom::trainer
