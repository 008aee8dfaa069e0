// The times of calls as they were measured in whole train steps on one device (`meshloom bench calibrate`). They are stored in
// the cache folder, beside the results of tuning and by the same key: device, driver, profile, kernels' sources. Plans predict
// with them and choose nothing by them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "hal/device.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// One call with one variant and its parameters.
struct MeasuredCall {
  std::string group;   // calls that one kernel computes, whatever their sizes: op, variant and dtypes
  std::string attrs;   // of the call
  double work = 0;     // work_of() the call
  double seconds = 0;  // the median
};

// One whole step beside the sum of its calls, as they were timed one after another.
struct MeasuredStep {
  double seconds = 0, of_calls = 0;
  double calls = 0;  // how many
};

// The key of a call and its choice among the measured ones.
std::string measured_key(const std::string& call, const kernels::Choice& choice);
// The description of a call and its choice, without a time.
MeasuredCall measured_call(const kernels::CallView& call, const kernels::Choice& choice);
// FLOPs and bytes as one number: a byte takes about as long as ten FLOPs.
double work_of(const kernels::CallView& call, const kernels::Choice& choice);

class MeasuredTimes {
 public:
  // No results yet, for this device.
  explicit MeasuredTimes(const hal::DeviceInfo& device);
  // What was saved for this very device, driver, profile and kernels. Nothing when there is none, or when the file is
  // unreadable or damaged; `note` then says so.
  static std::optional<MeasuredTimes> load(const hal::DeviceInfo& device, std::string* note = nullptr);

  // Throws Error (where = `where`) on anything that to_json() would not write.
  static MeasuredTimes parse(std::string_view json, const std::string& where);
  std::string to_json() const;
  // Throws Error when there is no cache folder or it cannot be written.
  void save() const;
  std::filesystem::path path() const;

  void set(const std::string& key, MeasuredCall call) { calls_[key] = std::move(call); }
  void erase(const std::string& key) { calls_.erase(key); }
  const std::map<std::string, MeasuredCall>& calls() const { return calls_; }

  // `name` tells steps apart: "tiny 4x64".
  void set_step(const std::string& name, MeasuredStep step) { steps_[name] = step; }
  const std::map<std::string, MeasuredStep>& steps() const { return steps_; }
  // What a whole step takes beside its calls, for each of them, by least squares of the steps' relative errors; below 0 where
  // calls overlap or timing them takes time.
  double between_calls() const;

 private:
  MeasuredTimes() = default;

  std::map<std::string, std::string> key_;
  std::map<std::string, MeasuredCall> calls_;
  std::map<std::string, MeasuredStep> steps_;
};

}  // namespace meshloom::trainer
