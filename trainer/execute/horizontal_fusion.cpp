#include "trainer/execute/horizontal_fusion.h"

#include <algorithm>
#include <utility>

#include "hal/environment.h"
#include "hal/fused_launch.h"
#include "hal/inspection.h"

namespace meshloom::trainer {
namespace {

using hal::ExecutableSpec;

constexpr std::size_t kMaxFused = 8;
constexpr std::size_t kLookAhead =
    192;  // commands behind a dispatch among which others of its kernel are sought
constexpr double kSmallInvocations =
    1 << 20;  // beyond them a dispatch runs for much longer than a launch takes
constexpr std::int64_t kBytesPerBinding = 16;  // a pointer and an offset
constexpr std::int64_t kGridBytes = 3 * 16;    // of the launch, with what aligns it
constexpr std::size_t kMaxArguments = 255;     // of a kernel: OpenCL 3.0, section 5.9

// The dispatches of a kernel that a launch has room for, with this one of so many workgroups; 1 = it runs alone.
std::size_t max_fused(const ExecutableSpec& spec, const std::array<std::uint32_t, 3>& groups,
                      std::int64_t parameter_bytes) {
  if (hal::invocations(spec.workgroup, groups) > kSmallInvocations) return 1;
  const std::int64_t each = kBytesPerBinding * static_cast<std::int64_t>(spec.bindings.size()) +
                            4 * static_cast<std::int64_t>(spec.constant_words + hal::kFusedWords);
  const std::size_t arguments = 2 * spec.bindings.size() + spec.constant_words + hal::kFusedWords;
  for (std::size_t count = kMaxFused; count > 1; count /= 2)
    if (static_cast<std::int64_t>(count) * each + kGridBytes <= parameter_bytes &&
        count * arguments + 2 <= kMaxArguments)
      return count;
  return 1;
}

}  // namespace

bool fuses_dispatches(const hal::DeviceInfo& device) {
  const auto tested = device.self_test_results.find(hal::kFusedLaunches);
  if (tested != device.self_test_results.end() && !tested->second.empty()) return false;
  return device.limits.max_parameter_bytes > 0 &&
         hal::number_from_environment("MESHLOOM_HORIZONTAL_FUSION", device.is_cpu ? 0 : 1) != 0;
}

bool HorizontalFusion::same_kernel(std::size_t i, std::size_t k) const {
  return dispatch(i)->executable == dispatch(k)->executable;
}

void HorizontalFusion::add_later(Launch& launch, std::size_t next) const {
  const std::size_t end = std::min(size(), next + kLookAhead);
  for (std::size_t i = next; i < end && room(launch) > 0; ++i) {
    if (is_fence(i)) break;
    if (ran_[i] || !shares(i) || !same_kernel(i, launch.front())) continue;
    bool independent = true;
    for (std::size_t k = next; k < i && independent; ++k) independent = ran_[k] || !conflict(k, i);
    for (const Launch& others : waiting_)
      for (const std::size_t k : others) independent = independent && !conflict(k, i);
    for (const std::size_t k : launch) independent = independent && !conflict(k, i);
    if (independent) launch.push_back(i);
  }
}

void HorizontalFusion::run(Launch launch, std::size_t next) {
  if (shares(launch.front())) add_later(launch, next);
  for (const std::size_t i : launch) ran_[i] = 1;
  record_launch(launch);
}

void HorizontalFusion::run_waiting(std::size_t next) {
  while (!waiting_.empty()) {
    Launch launch = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    run(std::move(launch), next);
  }
}

void HorizontalFusion::schedule() {
  ran_.assign(size(), 0);
  for (std::size_t i = 0; i < size(); ++i)
    max_fused_.push_back(dispatch(i) ? max_fused(dispatch(i)->executable->spec(), dispatch(i)->groups,
                                                 real_.info().limits.max_parameter_bytes)
                                     : 1);
  for (std::size_t next = 0; next < size(); ++next) {
    if (ran_[next]) continue;
    const auto waits_for = [&](const Launch& launch) {
      return std::any_of(launch.begin(), launch.end(), [&](std::size_t k) { return conflict(k, next); });
    };
    if (is_fence(next)) run_waiting(next);
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if (!waits_for(*at)) {
        ++at;
        continue;
      }
      Launch launch = std::move(*at);
      at = waiting_.erase(at);
      run(std::move(launch), next);
    }
    if (!shares(next)) {
      run({next}, next);
      continue;
    }
    const auto beside = std::find_if(waiting_.begin(), waiting_.end(),
                                     [&](const Launch& launch) { return same_kernel(launch.front(), next); });
    if (beside == waiting_.end()) {
      waiting_.push_back({next});
    } else {
      beside->push_back(next);
      if (room(*beside) == 0) {
        Launch launch = std::move(*beside);
        waiting_.erase(beside);
        run(std::move(launch), next + 1);
      }
    }
  }
  run_waiting(size());
}

void HorizontalFusion::record_launch(const Launch& launch) {
  double seconds = 0;
  for (const std::size_t i : launch) seconds += predicted_seconds(i);
  into_.predict(seconds);
  into_.barrier();
  if (launch.size() > 1)
    record_fused(launch);
  else
    record(launch.front());
}

void HorizontalFusion::record_fused(const Launch& launch) {
  const std::size_t first = launch.front();
  std::uint32_t count = 2;
  while (count < launch.size()) count *= 2;
  hal::FusedLaunch fused(dispatch(first)->executable->spec(), count);
  for (const std::size_t i : launch)
    fused.add(dispatch(i)->groups, command(i).bindings, dispatch(i)->constants);
  for (std::size_t i = launch.size(); i < count; ++i)
    fused.add({0, 0, 0}, command(first).bindings, dispatch(first)->constants);
  fused.record(real_, into_, command(first).label + " and " + std::to_string(launch.size() - 1) + " more");
}

}  // namespace meshloom::trainer
