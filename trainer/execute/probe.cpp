#include "trainer/execute/probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <span>

namespace meshloom::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Probe::Probe(hal::Device& device, std::uint32_t groups, std::int32_t rounds, int dispatches,
             const char* kernel)
    : device_(device) {
  const hal::DeviceInfo& info = device.info();
  const std::uint32_t width = info.backend == "cpu" ? 1
                              : info.is_cpu
                                  ? static_cast<std::uint32_t>(std::max(1, info.limits.subgroup))
                                  : static_cast<std::uint32_t>(std::min(256, info.limits.max_workgroup));
  hal::ExecutableSpec spec;
  spec.kernel = kernel;
  spec.workgroup = {width, 1, 1};
  spec.bindings = {hal::Access::write};
  spec.constant_words = 3;
  items_.assign(std::size_t{groups} * width, 0.0f);
  const auto bytes = static_cast<std::int64_t>(items_.size() * sizeof(float));
  buffer_ = device.allocate(bytes, "probe");
  device.write(*buffer_, 0, std::as_bytes(std::span(items_)));
  const hal::Binding y{buffer_.get(), 0, bytes, hal::Access::write};
  const std::array constants{hal::word(std::int64_t{rounds}), hal::word(0.999f), hal::word(0.25f)};
  const auto executable = device.load(spec);
  list_ = device.record("probe");
  for (int i = 0; i < dispatches; ++i) {
    if (i > 0) list_->barrier();
    list_->dispatch(executable, {groups, 1, 1}, {&y, 1}, constants, "probe");
  }
  list_->finish();
}

double Probe::seconds() {
  const Clock::time_point begin = Clock::now();
  device_.submit(*list_);
  device_.wait();
  return std::max(1e-9, seconds_since(begin));
}

double Probe::flops() {
  device_.read(*buffer_, 0, std::as_writable_bytes(std::span(items_)));
  return std::accumulate(items_.begin(), items_.end(), 0.0);
}

double measure_multiply_adds(hal::Device& device, const char* kernel, int tries, double seconds) {
  constexpr std::int32_t kMaxRounds = 32768;  // llvmpipe aborts longer loops
  const double long_enough = device.info().backend == "cpu" ? 0.5e-3 : 4e-3;
  const std::uint32_t groups = device.info().is_cpu ? 256 : 4096;
  double best = 0;
  for (std::int32_t rounds = 256; rounds <= kMaxRounds; rounds *= 2) {
    Probe probe(device, groups, rounds, 1, kernel);
    probe.seconds();  // warm-up
    const double once = probe.seconds();
    if (once < long_enough && rounds < kMaxRounds) continue;
    const double flops = probe.flops();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < tries || seconds_since(begin) < seconds; ++i)
      best = std::max(best, flops / probe.seconds());
    break;
  }
  return best;
}

}  // namespace meshloom::trainer
