// Everything besides the recipe and the data that the bits of a run depend on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hal/device.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

struct Machine {
  std::string device;        // the name that the driver gives; "cpu" for the host, whose name changes no bits
  std::string driver;        // name and version
  std::string instructions;  // the instruction set that the host's kernels were chosen for
  std::string program;       // version, compiler, and a hash of the sources of kernels and backends
  std::string kernels;       // xxhash64 of every distinct call of a step with its variant and its parameters
  std::map<std::string, std::int64_t> variants;  // "matmul gpu_tile" -> distinct calls
  std::vector<std::string> ranks;  // of a job of several, what the others have: machine_text() of each
};

// Device, driver, instructions, program and kernels in one text.
std::string machine_text(const Machine& machine);

// For a training plan on its device.
Machine machine_of(const hal::DeviceInfo& device, const Plan& plan);

// "driver: A -> B" for each field that differs; nothing when `then` is empty (a checkpoint of an older
// version).
std::vector<std::string> differences(const Machine& then, const Machine& now);

}  // namespace meshloom::trainer
