// A numerical self-test of a device: a few small calls against the double-precision reference.
#pragma once

#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"

namespace meshloom::trainer {

struct SelfTest {
  std::string op, variant;
  bool ok = false;
  double worst = 0;  // largest error as a part of what the contract allows
  std::string problem;
};

// Matmul, flash attention, normalisation and elementwise arithmetic, each with the variant the device's profile
// would get. Never throws: what goes wrong is a row.
std::vector<SelfTest> self_test(hal::Device& device, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
