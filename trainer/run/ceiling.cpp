#include "trainer/run/ceiling.h"

#include <algorithm>

#include "trainer/execute/probe.h"

namespace meshloom::trainer {
namespace {

constexpr int kTries = 8;
constexpr double kMaxOfTime = 0.01;  // that measuring may take
constexpr double kLonger = 1.1;      // the run must last since the last measurement: they get rarer

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Whether the profile's number is of this machine at this moment, not of a data sheet.
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
  // What AMX reaches is neither measured nor written down: a share of another unit's rate would say nothing.
  if (bf16 && info.has("amx-bf16")) return;
  const char* kernel = bf16 && info.has(kBf16Feature) ? kMultiplyAddBf16 : kMultiplyAdd;
  flops_ = info.profile.flops(hal::DType::f32);
  measure_ = [&device, kernel] {
    double reached = 0;
    try {
      reached = measure_multiply_adds(device, kernel, kTries, 0);
    } catch (const hal::OutOfMemory&) {  // the run has it all
    }
    device.reset_peak();  // the run's own is what is planned
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
  const bool due = elapsed > kLonger * measured_at_ && spent_ < kMaxOfTime * elapsed;
  if (measure_ && (due || reached > flops_)) measure();
  flops_ = std::max(flops_, reached);
  return reached / flops_;
}

}  // namespace meshloom::trainer
