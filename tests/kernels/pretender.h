// Runs the kernels for NVIDIA's tensor cores on any OpenCL device: the instructions are put together by hand (mma.inc),
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

// Says that it is an NVIDIA GPU.
inline void pretend(hal::DeviceInfo& info) {
  using hal::DType;
  info.is_cpu = false;
  info.vendor = "NVIDIA Corporation";
  info.profile = hal::find_profile("h100");
  info.limits.subgroup = 32;
  info.limits.max_local_bytes = 48 << 10;
  info.limits.max_workgroup = 1024;
  info.limits.matrix_shapes = {{16, 8, 16, DType::bf16, DType::f32}, {16, 8, 16, DType::f16, DType::f32}};
}

// A device that pretends, and makes the instructions by hand as `by_hand` says; 0: leaves them as they are.
class Pretender : public hal::ForwardingDevice {
 public:
  Pretender(std::unique_ptr<hal::Device> inner, int by_hand)
      : ForwardingDevice(std::move(inner)), by_hand_(by_hand) {
    pretend(info_);
  }

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& wanted) override {
    hal::ExecutableSpec spec = wanted;
    if (spec.kernel.find("ptx_") != std::string::npos) {
      for (const hal::Define& item : spec.defines)
        EXPECT_NE(item.name, "MMA_BY_HAND") << "is for tests alone";
      loaded_.push_back(spec);
      if (by_hand_ > 0) spec.defines.push_back({"MMA_BY_HAND", std::to_string(by_hand_)});
    }
    return ForwardingDevice::load(spec);
  }
  // The kernels for tensor cores, as they were asked for.
  const std::vector<hal::ExecutableSpec>& loaded() const { return loaded_; }

 private:
  int by_hand_;
  std::vector<hal::ExecutableSpec> loaded_;
};

}  // namespace meshloom::tests
