// Plans the update of the parameters on the host beside the programs of the device (passes/memory/host_update.h).
#pragma once

#include <utility>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/memory/memory.h"
#include "trainer/compose/passes/memory/host_update.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

using Programs = std::vector<std::pair<ProgramKey, kernels::Program>>;

// The values that programs of the host share with those of the device, but for those that lie in the host's memory.
std::vector<CopiedValue> copied_values(const Programs& of_device, const Programs& of_host);

// Plans the programs of the host, and what is copied between them and those of the device, which `plan` has. Fills plan.host, and adds
// the programs and their persistent values.
void plan_host(Plan& plan, Programs programs, const kernels::Catalog& catalog, const hal::DeviceInfo& device,
               const hal::DeviceInfo& host_device, const Marks& marks);

}  // namespace meshloom::trainer
