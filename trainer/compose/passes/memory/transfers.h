// Where copies between the device's memory and the host's stand in a program.
#pragma once

#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// A copy to the host follows the call that defines its value by so many calls, and a copy to the device precedes the first
// that reads it by so many: the calls between need not wait for it. (Right after its value's call a copy would need a
// barrier of its own, which a call or two later there mostly is.)
constexpr int kTransferDelay = 2, kTransferAhead = 4;

// Appends to `calls` a transfer of the value to memory of this kind. Returns the copy, whose value is the same but for that.
kernels::ValueId append_transfer(kernels::Program& program, kernels::ValueId id, hal::MemoryKind memory,
                                 kernels::Phase phase, std::string path, std::vector<kernels::Call>& calls);

// Moves the transfers there, and sums over micro-batches that lie on the host to the calls that define what they add.
// Values keep their bits.
kernels::Program schedule_transfers(kernels::Program program, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
