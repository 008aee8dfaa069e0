// Predicts how long calls take, from the best that is known of them:
//   measured  this variant with these parameters was timed on this call and this device (measured_times.h), or by tuning
//   similar   it was timed there on other sizes: the nearest time, scaled by a line through those of the same kernel
//   fitted    neither: the roofline's times, divided by the efficiency that such variants reach (efficiencies.json), and a
//             launch for each dispatch
// A prediction that was not measured on the very call is never below the roofline's bound: no variant exceeds the rate of
// the unit that it multiplies on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hal/device.h"
#include "kernels/program/program.h"
#include "trainer/compose/cost/measured_times.h"
#include "trainer/compose/plan.h"
#include "trainer/compose/tuning/tuning.h"

namespace meshloom::trainer {

// The parts of the unit's rate and of the bandwidth that a family of variants reaches.
struct Efficiency {
  std::string op, variant;  // patterns (layers/config/glob.h)
  std::string
      kind;  // of the profile, or a driver of the processor: "gpu", "opencl on the processor"; "" = any
  double flops = 1, bytes = 1;
  std::string source;
};
// The first that matches. Throws Error when none does: the last entry must match everything.
const Efficiency& efficiency_of(const kernels::Choice& choice, const hal::DeviceInfo& device);
// Seconds to start one dispatch on such a device, and where the number comes from.
std::pair<double, std::string> launch_seconds(const hal::DeviceInfo& device);

class CostModel {
 public:
  // With what was measured on the device, if anything was.
  explicit CostModel(const hal::DeviceInfo& device);
  // With these times instead.
  CostModel(const hal::DeviceInfo& device, std::optional<MeasuredTimes> times);

  // What was wrong with the file of measured times; "" = nothing.
  const std::string& note() const { return note_; }

  // Sets predicted_seconds, floor_seconds and basis of the choice for this call, whose text is `key` (call_text.h).
  void predict(kernels::Choice& choice, const std::string& key, const kernels::CallView& call) const;

 private:
  struct Point {
    double work = 0, seconds = 0;
  };
  // seconds = start + work * slope
  struct Line {
    double start = 0, slope = 0;
    std::vector<Point> points;
    double at(double work) const { return start + work * slope; }
    double predict(double work) const;
  };
  void fit_lines();
  static void fit(Line& line, double launch);
  double fitted(const kernels::Choice& choice, const kernels::CallView& call) const;

  const hal::DeviceInfo& device_;
  hal::DeviceInfo computing_;  // with the rates of what computes
  std::string note_;
  std::optional<MeasuredTimes> times_;
  double between_ = 0;  // MeasuredTimes::between_calls
  std::optional<Tuning> tuning_;
  // By group and attributes, and by group.
  std::map<std::pair<std::string, std::string>, Line> exact_;
  std::map<std::string, Line> groups_;
};

// Predicts the calls of a plan anew, but those that run on the host.
void predict_plan(Plan& plan, const CostModel& costs);

}  // namespace meshloom::trainer
