// A planned program as recorded commands.
#pragma once

#include <memory>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// Writes every call through its variant, with a barrier before a call only where it touches bytes that a call
// since the last barrier wrote, or writes bytes that one read. `buffers` are the plan's blocks, in order. With `timed`
// a timestamp stands before the first call and behind each call that is no view.
void lower(const PlannedProgram& planned, const kernels::Catalog& catalog,
           const std::vector<std::unique_ptr<hal::Buffer>>& buffers, hal::Device& device,
           hal::CommandList& commands, bool timed = false);

}  // namespace meshloom::trainer
