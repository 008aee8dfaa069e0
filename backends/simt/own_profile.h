// The profile a device reports of itself, from what its driver tells.
#pragma once

#include <cstdint>
#include <string>

#include "hal/device.h"

namespace meshloom::backends::simt {

// What drivers tell beyond hal::Limits; 0 = not told.
struct DriverFacts {
  std::int32_t cores = 0;  // compute units, SMs, hardware threads
  std::int32_t lanes = 1;  // f32 elements of a subgroup or of a CPU's vectors
  double flops_per_core_cycle = 0;
  double hertz = 0;
  std::string driver;  // "OpenCL driver": source of the plain numbers
  std::string cores_source, flops_source;
};

// A host's processor is "host-cpu". A GPU that a shipped profile describes takes that profile's name, peaks
// and links, with its own memory and limits; any other GPU is named after its product
// ("nvidia-geforce-gtx-1080"), and peaks that nobody tells are estimates, which `sources` says, or absent.
hal::Profile own_profile(const hal::DeviceInfo& info, const DriverFacts& facts);

// The shipped GPU profile whose model a driver's device name contains as whole words ("AMD Radeon RX 7900 XTX (RADV NAVI31)"
// is rx7900xtx); nullptr when there is none. "NVIDIA GeForce RTX 3060 Ti" is not rtx3060.
const hal::Profile* shipped_profile_of(const std::string& device_name);

}  // namespace meshloom::backends::simt
