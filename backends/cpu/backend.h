// The CPU backend: host memory, one thread pool, kernels vectorised with run-time dispatch.
#pragma once

#include "hal/registry.h"
#include "kernels/core/catalog.h"

namespace meshloom::backends::cpu {

hal::BackendEntry cpu_backend();
void add_cpu_variants(kernels::Catalog& catalog);

}  // namespace meshloom::backends::cpu
