// The two measurements of the host's profile.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu/device/host.h"
#include "backends/cpu/simd/vector_info.h"

namespace meshloom::backends::cpu {
namespace {

template <typename F>
double seconds(F&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::max(1e-9, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace

double measure_flops(ThreadPool& pool, int cores) {
  const int active = std::min(pool.workers(), cores);
  constexpr std::int64_t kRounds = 20'000;  // well below a millisecond, so that items balance the workers
  const auto trial = [&](std::uint32_t items) {
    std::vector<double> done(static_cast<std::size_t>(pool.workers()) * 8, 0.0);  // one cache line per worker
    const double time = seconds([&] {
      pool.run(items, [&](std::uint32_t begin, std::uint32_t end, int worker) {
        for (std::uint32_t i = begin; i < end; ++i)
          done[static_cast<std::size_t>(worker) * 8] += run_fma_loop(kRounds);
      });
    });
    double flops = 0;
    for (double part : done) flops += part;
    return flops / time;
  };
  double one = 0;  // the rate of one worker
  for (int i = 0; i < 16; ++i) one = std::max(one, trial(1));
  // The operating system may keep newly started workers on one core for a while. Until they reach the expected rate,
  // trials continue and get longer.
  const double expected = 0.9 * one * active;
  double best = 0;
  auto items = static_cast<std::uint32_t>(active * 32);
  for (int i = 0; i < 4 || (i < 10 && best < expected); ++i) {
    best = std::max(best, trial(items));
    if (i >= 3) items *= 2;
  }
  return best;
}

double measure_read_bandwidth(ThreadPool& pool, std::int64_t l3_bytes) {
  const std::int64_t bytes = std::clamp<std::int64_t>(2 * l3_bytes, 32 << 20, 256 << 20);
  constexpr std::int64_t kPiece = 64 << 10;  // floats
  const std::int64_t count = bytes / 4 / kPiece * kPiece;
  const auto data = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(count));
  const auto items = static_cast<std::uint32_t>(count / kPiece);
  pool.run(items, [&](std::uint32_t begin, std::uint32_t end, int) {
    std::fill(data.get() + begin * kPiece, data.get() + end * kPiece, 1.0f);
  });
  double best = 0;
  for (int trial = 0; trial < 2; ++trial) {
    const double time = seconds([&] {
      pool.run(items, [&](std::uint32_t begin, std::uint32_t end, int) {
        volatile float sink = sum_stream(data.get() + begin * kPiece, (end - begin) * kPiece);
        (void)sink;
      });
    });
    best = std::max(best, static_cast<double>(count) * 4 / time);
  }
  return best;
}

}  // namespace meshloom::backends::cpu
