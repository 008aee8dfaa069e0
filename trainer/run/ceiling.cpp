#include "trainer/run/ceiling.h"

#include <algorithm>

#include "trainer/execute/probe.h"

namespace meshloom::trainer {
namespace {

constexpr int kTries = 8;
constexpr double kMaxOfTime = 0.01;  // the fraction of the run that measuring may take
constexpr double kGrowth = 1.1;      // of the time between measurements: they become rarer

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Whether the profile's number was measured on this machine and not taken from a data sheet.
bool was_measured(const hal::Profile& profile) {
  const auto source = profile.sources.find("peak_flops.f32");
  return source != profile.sources.end() && source->second.starts_with("measured");
}

}  // namespace

FlopsCeiling::FlopsCeiling(hal::Device& device, hal::DType dtype) {
  const hal::DeviceInfo& info = device.info();
  if (!was_measured(info.profile)) {
    flops_ = hal::peak_flops(info.profile, dtype);
    return;
  }
  const bool bf16 = dtype == hal::DType::bf16;
  // The peak of AMX is not known, and a fraction of another unit's peak would say nothing.
  if (bf16 && info.has("amx-bf16")) return;
  const char* kernel = bf16 && info.has(kBf16Feature) ? kMultiplyAddBf16 : kMultiplyAdd;
  flops_ = info.profile.flops(hal::DType::f32);
  measure_ = [&device, kernel] {
    double reached = 0;
    try {
      reached = measure_multiply_adds(device, kernel, kTries, 0);
    } catch (const hal::OutOfMemory&) {  // the run uses all memory
    }
    device.reset_peak();  // this measurement's memory is not the run's
    return reached;
  };
  measure();
}

FlopsCeiling::FlopsCeiling(double flops, std::function<double()> measure)
    : flops_(flops), measure_(std::move(measure)) {}

void FlopsCeiling::measure() {
  const double start = seconds_since(begin_);
  flops_ = std::max(flops_, measure_());
  measured_at_ = seconds_since(begin_);
  spent_ += measured_at_ - start;
}

double FlopsCeiling::utilization(double flops, double seconds) {
  if (flops_ <= 0 || flops <= 0 || seconds <= 0) return 0;
  const double reached = flops / seconds, elapsed = seconds_since(begin_);
  const bool due = elapsed > kGrowth * measured_at_ && spent_ < kMaxOfTime * elapsed;
  if (measure_ && (due || reached > flops_)) measure();
  flops_ = std::max(flops_, reached);
  return reached / flops_;
}

}  // namespace meshloom::trainer
