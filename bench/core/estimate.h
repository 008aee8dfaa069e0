// A training step on a GPU that is not at hand, by what the compiler of its driver makes of the kernels. Nothing runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/measure/workload.h"
#include "hal/device.h"
#include "trainer/compose/plan.h"
#include "trainer/execute/estimate_call.h"

namespace meshloom::bench {

// The part of the likely time by which a measured one may differ from it and still agree.
constexpr double kMaxDeviation = 0.2;

struct EstimatedRow {
  std::string op, shape, variant;
  std::string text;  // of the call, as rows of `meshloom bench` have it
  std::int64_t per_step = 0;
  trainer::EstimatedCall call;  // each of them
  std::string error;            // why it could not be inspected; then it has no time
  double measured_seconds = 0;  // of all of them in a step; 0 = not measured
  std::string measured_variant;

  double likely_seconds() const;  // of all of them in a step
  bool compared() const { return error.empty() && measured_seconds > 0; }
  bool agrees() const;  // compared, and within kMaxDeviation
};

struct EstimatedStep {
  std::string recipe;              // as it was asked for
  std::vector<EstimatedRow> rows;  // those that take longest first
  double tokens = 0;               // of a step
  double flops = 0;                // of a step, without those of recomputed calls
  double peak = 0;                 // FLOP/s of products of the recipe's dtype; 0 = unknown
  double copy_seconds = 0;         // between the device's memory and the host's
  double shared_launch_seconds =
      0;                 // seconds that the calls' times have too much, as dispatches start together
  bool stopped = false;  // before all calls were inspected
  // A run of the same step (bench/core/measured_step.h); empty and 0 without one.
  std::string measured_on;
  double measured_wall_seconds = 0, measured_kernel_seconds = 0;

  double likely_seconds() const;
  double best_seconds() const;
  std::size_t failed() const;  // rows without a time
};

struct EstimateOptions {
  std::function<bool()> stopped;                               // may be empty
  std::function<void(int, int, const std::string&)> progress;  // may be empty
};

// `plan` was composed for `device`, which Registry::open_to_inspect opened.
EstimatedStep estimate_step(hal::Device& device, const kernels::Catalog& catalog, const trainer::Plan& plan,
                            const EstimateOptions& options);

std::string to_text(const EstimatedStep& step, std::size_t max_rows);
std::string to_json(const EstimatedStep& step, const hal::DeviceInfo& device);

}  // namespace meshloom::bench
