// Measures the rate of multiply-adds that a device reaches, with a kernel that every backend has for this
// purpose.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hal/device.h"

namespace meshloom::trainer {

// The kernel: (rounds, scale, offset) -> y[item], the number of FLOPs of that work item, all of them
// multiply-adds in registers.
constexpr const char* kMultiplyAdd = "probe_multiply_add";
// The same for products of bf16, on devices with the feature kBf16Feature.
constexpr const char *kMultiplyAddBf16 = "probe_multiply_add_bf16", *kBf16Feature = "bf16-products";

// A list of `dispatches` runs of the kernel, with barriers between them.
class Probe {
 public:
  Probe(hal::Device& device, std::uint32_t groups, std::int32_t rounds, int dispatches,
        const char* kernel = kMultiplyAdd);
  // The time of one submit, never 0.
  double seconds();
  // The FLOPs of one dispatch.
  double flops();

 private:
  hal::Device& device_;
  std::vector<float> items_;
  std::unique_ptr<hal::Buffer> buffer_;
  std::unique_ptr<hal::CommandList> list_;
};

// The best FLOP/s of `tries` runs, and of more runs while all together took less than `seconds`. A run is
// long enough that its launch does not matter, and short enough that some of many find all cores idle. Throws
// OutOfMemory.
double measure_multiply_adds(hal::Device& device, const char* kernel, int tries, double seconds);

}  // namespace meshloom::trainer
