// What a run's steps are held to: model FLOPs utilisation (MFU), Chowdhery et al., "PaLM", 2022, appendix B.
#pragma once

#include <chrono>
#include <functional>

#include "hal/device.h"

namespace meshloom::trainer {

// The rate at which products of a dtype run at best: the profile's, where that was measured the best of what
// was measured again while the run goes on, and never less than a step has reached. A machine that was busy
// when the run began so does not leave a ceiling that every later step is above.
class FlopsCeiling {
 public:
  // On what `device` runs as; it must outlive the ceiling.
  FlopsCeiling(hal::Device& device, hal::DType dtype);
  // `flops` at first (0 = not known), and what measures them again, if anything.
  FlopsCeiling(double flops, std::function<double()> measure);

  // The part of the ceiling that a step of `flops` in `seconds` reached: at most 1, 0 where no ceiling is
  // known. Called between steps: a measurement then takes some milliseconds, and all of them a hundredth of
  // the run's time but for those right after a step above the ceiling.
  double utilization(double flops, double seconds);
  double flops() const { return flops_; }

 private:
  void measure();

  double flops_ = 0;
  std::function<double()> measure_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double measured_at_ = 0, spent_ = 0;  // seconds since begin_, and of all measurements
};

}  // namespace meshloom::trainer
