// Times whole train steps, and each of their calls.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/core/report.h"
#include "bench/measure/statistics.h"
#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/cost/measured_times.h"
#include "trainer/compose/plan.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::bench {

// One call of the step's programs.
struct StepCall {
  std::string op, variant, phase, path, tag, shape;
  std::string call;                // as rows of `meshloom bench` have it: equal calls have equal texts
  std::string key;                 // of the call and its choice (trainer/compose/cost/measured_times.h)
  trainer::MeasuredCall measured;  // without a time
  std::string dtype;               // of the first input
  double flops = 0, bytes = 0;
  std::int64_t times = 1;       // calls in one step
  std::vector<double> seconds;  // one value per step, by the device's clock
  double start = 0;             // in the last step, since its first call
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
  // Raises the ceilings to the rates that the calls and the whole step reached.
  void raise_ceilings();
  // The time of the FLOPs of a call, or of one step, at the peak of their dtype; 0 when none was measured.
  double peak_seconds(const StepCall& call) const;
  double peak_seconds() const;
};

// The calls of a program that run kernels, each of which runs `times` times in a step.
std::vector<StepCall> step_calls(const kernels::Program& program, const kernels::Catalog& catalog,
                                 std::int64_t times);

// Calls with equal values of the fields by which the step is broken down.
struct StepGroup {
  std::vector<std::string> key;
  std::int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0, peak_seconds = 0;
};
// Groups the calls by some of op, variant, phase, path, tag, shape; largest time first. Throws Error on any
// other name.
std::vector<StepGroup> group(const StepReport& report, const std::vector<std::string>& by);

// After one warm-up step, runs `steps` whole steps on random tokens and, alternating with them, as many steps
// with a timestamp after every call. Throws Error (also when the device has no timestamps), OutOfMemory.
// `stopped` and `progress` may be empty.
void run_steps(const trainer::TrainerConfig& config, trainer::Plan plan, hal::Device& device,
               const kernels::Catalog& catalog, int steps, const std::function<bool()>& stopped,
               const std::function<void(int, int, const std::string&)>& progress, StepReport& report);

// The groups as a table, and as a JSON list.
std::string groups_text(const StepReport& report, const std::vector<std::string>& by);
nlohmann::ordered_json groups_json(const StepReport& report, const std::vector<std::string>& by);

std::string to_text(const StepReport& report, const std::vector<std::string>& by);
constexpr std::string_view kStepSchema = "meshloom-step/1";
std::string to_json(const StepReport& report, const std::vector<std::string>& by);
// The calls of the last step in the format of chrome://tracing and Perfetto, with one track per phase.
std::string to_trace(const StepReport& report);

}  // namespace meshloom::bench
