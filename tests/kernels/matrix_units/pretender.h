// Runs the kernels for a GPU's matrix units on any OpenCL device: the instructions are put together by hand (mma.inc, dpas.inc),
// everything else runs as there.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hal/profile.h"
#include "hal/wrappers/forwarding_device.h"

namespace meshloom::tests {

// The GPU that a device pretends to be.
struct PretendedGpu {
  std::string vendor, name, profile;
  std::int32_t subgroup = 32;
  std::int64_t max_local_bytes = 48 << 10;
  std::vector<hal::MatrixShape> matrix_shapes;
  // Kernels whose names have this word have the instructions; where this constant is defined they are made by hand.
  std::string kernels, by_hand;
};

inline PretendedGpu nvidia_gpu() {
  using hal::DType;
  return {"NVIDIA Corporation",
          "",
          "h100",
          32,
          48 << 10,
          {{16, 8, 16, DType::bf16, DType::f32},
           {16, 8, 16, DType::f16, DType::f32},
           {16, 8, 32, DType::i8, DType::i32}},
          "ptx_",
          "MMA_BY_HAND"};
}

// With matrix units for subgroups of 8 or 16 lanes.
inline PretendedGpu intel_gpu(std::int32_t lanes) {
  using hal::DType;
  return {"Intel(R) Corporation",
          lanes == 8 ? "Intel(R) Arc(TM) A770 Graphics" : "Intel(R) Arc(TM) B580 Graphics",
          lanes == 8 ? "arc-a770" : "arc-b580",
          16,
          64 << 10,
          {{8, lanes, 16, DType::bf16, DType::f32},
           {8, lanes, 16, DType::f16, DType::f32},
           {8, lanes, 32, DType::i8, DType::i32}},
          "_dpas",
          "DPAS_BY_HAND"};
}

// A device that pretends, and makes the instructions by hand as `by_hand` says; 0: leaves them as they are.
class Pretender : public hal::ForwardingDevice {
 public:
  Pretender(std::unique_ptr<hal::Device> inner, int by_hand, PretendedGpu gpu = nvidia_gpu())
      : ForwardingDevice(std::move(inner)), by_hand_(by_hand), gpu_(std::move(gpu)) {
    info_.is_cpu = false;
    info_.vendor = gpu_.vendor;
    if (!gpu_.name.empty()) info_.name = gpu_.name;
    info_.profile = hal::find_profile(gpu_.profile);
    info_.limits.subgroup = gpu_.subgroup;
    info_.limits.max_local_bytes = gpu_.max_local_bytes;
    info_.limits.max_workgroup = 1024;
    info_.limits.matrix_shapes = gpu_.matrix_shapes;
  }

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& wanted) override {
    hal::ExecutableSpec spec = wanted;
    if (spec.kernel.find(gpu_.kernels) != std::string::npos) {
      for (const hal::Define& item : spec.defines) EXPECT_NE(item.name, gpu_.by_hand) << "is for tests alone";
      loaded_.push_back(spec);
      if (by_hand_ > 0) spec.defines.push_back({gpu_.by_hand, std::to_string(by_hand_)});
    }
    return ForwardingDevice::load(spec);
  }
  // The kernels for matrix units, as they were asked for.
  const std::vector<hal::ExecutableSpec>& loaded() const { return loaded_; }

 private:
  int by_hand_;
  PretendedGpu gpu_;
  std::vector<hal::ExecutableSpec> loaded_;
};

}  // namespace meshloom::tests
