#include "trainer/inference/speculator.h"

#include <algorithm>

namespace meshloom::trainer {
namespace {

constexpr std::int64_t kMaxMisses = 5;  // of which each doubles the pause

}  // namespace

std::int64_t DraftLength::next(std::int64_t most) {
  if (pause_ > 0) {
    --pause_;
    return 0;
  }
  if (length_ == 0) length_ = most;
  return std::min(length_, most);
}

void DraftLength::verified(std::int64_t proposed, std::int64_t accepted) {
  if (proposed == 0) return;
  length_ = accepted == proposed ? std::max(length_, 2 * proposed) : accepted + 1;
  misses_ = accepted > 0 ? 0 : std::min(misses_ + 1, kMaxMisses);
  pause_ = (std::int64_t{1} << misses_) - 1;
}

}  // namespace meshloom::trainer
