// A plan on a device: its memory is allocated, and every program is recorded once and can be submitted any
// number of times.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

class Session {
 public:
  // Allocates exactly plan.peak_bytes and records every program. Throws OutOfMemory, Error.
  Session(hal::Device& device, const kernels::Catalog& catalog, Plan plan);

  const Plan& plan() const { return plan_; }
  hal::Device& device() { return device_; }
  // Copy a persistent value, by its name; `data` and `into` must have its size. Throw Error.
  void write(const std::string& name, std::span<const std::byte> data);
  void read(const std::string& name, std::span<std::byte> data);
  // Submits a program of the plan; returns at once. Throws Error.
  void run(Step step);
  void wait() { device_.wait(); }
  // Submits a program, waits for it, and returns the seconds of each of its calls by the device's clock, in
  // order, without views. Throws Error when the device has no timestamps.
  std::vector<double> run_timed(Step step);

 private:
  hal::Device& device_;
  const kernels::Catalog& catalog_;
  Plan plan_;
  std::vector<std::unique_ptr<hal::Buffer>> buffers_;
  std::map<Step, std::unique_ptr<hal::CommandList>> lists_, timed_lists_;
};

// Writes the initial values of every parameter for `seed`, and zeros to every other persistent value.
void initialize(Session& session, std::uint64_t seed);

}  // namespace meshloom::trainer
