// Lowers a planned program to recorded commands.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// The calls [first, last) of a program; all of them by default.
struct CallRange {
  int first = 0, last = std::numeric_limits<int>::max();
};

// Every call is recorded by its variant. A barrier precedes a call only when the call touches bytes that were
// written since the last barrier, or writes bytes that were read since. `buffers` are the plan's blocks, in
// order. Where the device fuses dispatches, those of one kernel that are independent come together (horizontal_fusion.h). Views and collectives are not recorded: who runs a program with collectives cuts it at them. With `timed` a
// timestamp is recorded before the first call and after each call that is no view, and no marks are.
void lower(const PlannedProgram& planned, const kernels::Catalog& catalog,
           const std::vector<std::unique_ptr<hal::Buffer>>& buffers, hal::Device& device,
           hal::CommandList& commands, bool timed = false, CallRange range = {});

}  // namespace meshloom::trainer
