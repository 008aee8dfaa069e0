// The peak FLOP/s that model FLOPs utilisation (MFU) is relative to (Chowdhery et al., "PaLM", 2022, appendix
// B).
#pragma once

#include <chrono>
#include <functional>

#include "hal/device.h"

namespace meshloom::trainer {

// The best rate of multiply-adds of a dtype: the number of the device's profile. Where the profile's number
// was measured, it is measured again from time to time, the best result counts, and it is never below what a
// step has reached. So a machine that was busy when the run began does not leave a ceiling that later steps
// exceed.
class FlopsCeiling {
 public:
  // For the profile that `device` runs as; the device must outlive this object.
  FlopsCeiling(hal::Device& device, hal::DType dtype);
  // `flops` is the first value, 0 = unknown; `measure` measures it again and may be empty.
  FlopsCeiling(double flops, std::function<double()> measure);

  // The fraction of the ceiling that a step of `flops` in `seconds` reached: at most 1; 0 when no ceiling is
  // known. To be called between steps, because it may measure, which takes some milliseconds. Measurements
  // take at most a hundredth of the run's time, apart from those right after a step above the ceiling.
  double utilization(double flops, double seconds);
  double flops() const { return flops_; }

 private:
  void measure();

  double flops_ = 0;
  std::function<double()> measure_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double measured_at_ = 0;  // seconds from begin_ to the last measurement
  double spent_ = 0;        // seconds of all measurements
};

}  // namespace meshloom::trainer
