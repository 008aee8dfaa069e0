#include "trainer/execute/initial_values.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

#include "hal/math.h"

namespace meshloom::trainer {
namespace {

// Elements per task: milliseconds of work, so that starting a thread costs little in comparison.
constexpr std::int64_t kPiece = std::int64_t{1} << 18;

}  // namespace

void initial_values(const layers::ParameterInfo& info, std::uint64_t seed, int threads,
                    std::span<float> into) {
  const std::int64_t all = static_cast<std::int64_t>(into.size()), pieces = hal::ceil_div(all, kPiece);
  std::atomic<std::int64_t> next = 0;
  const auto work = [&] {
    for (std::int64_t piece; (piece = next++) < pieces;) {
      const std::int64_t begin = piece * kPiece;
      info.initialize_range(seed, begin, std::min(kPiece, all - begin), into.data() + begin);
    }
  };
  std::vector<std::future<void>>
      helpers;  // they pass on exceptions, and wait for their threads when destroyed
  for (std::int64_t i = 1; i < std::min<std::int64_t>(threads, pieces); ++i)
    helpers.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& helper : helpers) helper.get();
}

}  // namespace meshloom::trainer
