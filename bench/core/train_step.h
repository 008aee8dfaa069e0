// Whole train steps, and where their time goes call by call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/core/report.h"
#include "bench/core/statistics.h"
#include "hal/device.h"
#include "trainer/compose/plan.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::bench {

// One call of the step's programs.
struct StepCall {
  std::string op, variant, phase, path, tag, shape;
  std::string dtype;  // of its first input
  double flops = 0, bytes = 0;
  std::int64_t times = 1;       // in one step
  std::vector<double> seconds;  // one per step, by the device's clock
  double start = 0;             // of the last step's, since its first call
};

struct StepReport {
  Header header;
  Ceilings ceilings;
  std::string recipe;
  std::int64_t tokens = 0;      // of one step
  std::vector<double> wall;     // seconds of whole steps
  std::vector<StepCall> calls;  // in program order
  bool stopped = false;

  double kernel_seconds() const;  // sum over the calls of median times
  double flops() const;           // of one step
  // Raises the ceilings to what the calls, and the step as a whole, reached.
  void raise_ceilings();
  // What the FLOPs of a call, and of one step, take at the peak of their dtype; 0 where none was measured.
  double peak_seconds(const StepCall& call) const;
  double peak_seconds() const;
};

// Calls that agree in what the step is broken down by.
struct StepGroup {
  std::vector<std::string> key;
  std::int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0, peak_seconds = 0;
};
// `by`: some of op, variant, phase, path, tag, shape. Largest time first. Throws Error on another word.
std::vector<StepGroup> group(const StepReport& report, const std::vector<std::string>& by);

// Runs `steps` whole steps on random tokens, and as many in which the device notes its time after every call, in turn,
// after one step that warms up. Throws Error (of a device that notes no times too), OutOfMemory. `stopped` and
// `progress` may be empty.
void run_steps(const trainer::TrainerConfig& config, trainer::Plan plan, hal::Device& device,
               const kernels::Catalog& catalog, int steps, const std::function<bool()>& stopped,
               const std::function<void(int, int, const std::string&)>& progress, StepReport& report);

std::string to_text(const StepReport& report, const std::vector<std::string>& by);
std::string to_json(const StepReport& report, const std::vector<std::string>& by);
// In the form of chrome://tracing and Perfetto: the calls of the last step, one track per phase.
std::string to_trace(const StepReport& report);

}  // namespace meshloom::bench
