// What a device's multiply-adds reach: runs of the kernel that every backend has for the purpose.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hal/device.h"

namespace meshloom::trainer {

// The kernel: (rounds, scale, offset) -> y[item] = the FLOPs that work item did, all multiply-adds in
// registers.
constexpr const char* kMultiplyAdd = "probe_multiply_add";
// The same of products of bf16, on devices with the feature.
constexpr const char *kMultiplyAddBf16 = "probe_multiply_add_bf16", *kBf16Feature = "bf16-products";

// A list of `dispatches` runs of the kernel, with barriers between them.
class Probe {
 public:
  Probe(hal::Device& device, std::uint32_t groups, std::int32_t rounds, int dispatches,
        const char* kernel = kMultiplyAdd);
  // Of one submit, never 0.
  double seconds();
  // Of one dispatch.
  double flops();

 private:
  hal::Device& device_;
  std::vector<float> items_;
  std::unique_ptr<hal::Buffer> buffer_;
  std::unique_ptr<hal::CommandList> list_;
};

// FLOP/s: the best of `tries` runs, and of more while they took less than `seconds` together. A run is long
// enough that its launch does not count, and short enough that some of many meet all cores idle. Throws
// OutOfMemory.
double measure_multiply_adds(hal::Device& device, const char* kernel, int tries, double seconds);

}  // namespace meshloom::trainer
