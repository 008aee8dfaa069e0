// Plans where every value of every program lives, exactly and before anything is allocated.
//
// Persistent values (program inputs, donated outputs, named outputs) have storage of their own, which is the
// same in all programs. All other values live from the call that defines them to their last reader and share
// the transient blocks. Views share their source's storage, and an output reuses the storage of an input
// whose last reader its call is, where the contract says that the kernel works in place. Workspaces live
// during their call. A collective reads its inputs where it starts, and writes its outputs where it ends; in between the bytes
// are in staging memory of the host (exchanges.h). Values in the host's memory get blocks of their own there in the same way.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

constexpr std::int64_t kPlacementAlignment = 256;

// A value of the device that gets a copy in the host's memory (HostPlan::copies).
struct CopiedValue {
  std::string name;
  kernels::TensorType type;
  kernels::Role role;
};

// Fills plan.blocks, persistent, persistent_types, steps.programs, staging_bytes, memory, memory_max, peak_bytes and largest.
// Every call of the programs must have its choice. Persistent values, and their blocks, that the plan has already keep
// their places. Throws OutOfMemory when one tensor exceeds the device's largest allocation, and Error when one name has
// two types.
void plan_memory(Plan& plan, std::vector<std::pair<ProgramKey, kernels::Program>> programs,
                 const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                 const std::vector<CopiedValue>& copied = {});

// Checks a plan independently of how it was made. Throws Error when two values of a program that are needed
// at the same time overlap, when a placement is missing or lies partly outside of its block, or when two
// persistent values overlap.
void check_memory(const Plan& plan, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
