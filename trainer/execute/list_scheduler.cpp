#include "trainer/execute/list_scheduler.h"

#include <algorithm>
#include <vector>

#include "hal/environment.h"

namespace meshloom::trainer {
namespace {

// Commands behind the first that has not run among which others are sought. In a step of smollm2-135m 1,000 leave less than 1 % fewer
// barriers than 64.
constexpr std::size_t kWindow = 64;

}  // namespace

bool overlaps_dispatches(const hal::DeviceInfo& device) {
  return device.has("overlapping-dispatches") &&
         hal::number_from_environment("MESHLOOM_LIST_SCHEDULING", 1) != 0;
}

void ListScheduler::schedule() {
  std::vector<std::vector<std::size_t>> waits_for(
      size());  // of those that may not have run when it is looked at
  for (std::size_t i = 0; i < size(); ++i)
    for (std::size_t k = i - std::min(i, kWindow - 1); k < i; ++k)
      if (conflict(k, i)) waits_for[i].push_back(k);
  std::vector<char> ran(size());
  std::vector<std::size_t> since_barrier;
  for (std::size_t next = 0; next < size();) {
    std::vector<std::size_t> together;
    for (std::size_t i = next; i < std::min(size(), next + kWindow); ++i) {
      if (is_fence(i) && i > next) break;
      const auto has_run = [&](std::size_t k) { return ran[k] != 0; };
      if (!ran[i] && std::all_of(waits_for[i].begin(), waits_for[i].end(), has_run)) together.push_back(i);
      if (is_fence(i)) break;
    }
    // Commands that a mark or a call of the host keeps apart may need none.
    const bool wait = std::any_of(together.begin(), together.end(), [&](std::size_t i) {
      return std::any_of(since_barrier.begin(), since_barrier.end(),
                         [&](std::size_t k) { return conflict(k, i); });
    });
    if (wait) {
      into_.barrier();
      since_barrier.clear();
    }
    since_barrier.insert(since_barrier.end(), together.begin(), together.end());
    for (const std::size_t i : together) {
      into_.predict(predicted_seconds(i));
      record(i);
      ran[i] = 1;
    }
    while (next < size() && ran[next]) ++next;
  }
}

}  // namespace meshloom::trainer
