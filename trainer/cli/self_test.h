// A numerical self-test of a device: compares a few small calls with the double-precision reference.
#pragma once

#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"

namespace meshloom::trainer {

struct SelfTestResult {
  std::string op, variant;
  bool ok = false;
  double worst = 0;  // largest error as a fraction of the contract's tolerance
  std::string problem;
};

// Tests matmul, flash attention, normalization and elementwise arithmetic, each with the variant that the
// device's profile would get. Never throws: errors are reported as results.
std::vector<SelfTestResult> self_test(hal::Device& device, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
