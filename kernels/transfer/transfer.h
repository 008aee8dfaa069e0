// A copy of a tensor in the other kind of memory, with the same bits.
#pragma once

#include "hal/memory_kind.h"
#include "kernels/core/variant.h"
#include "kernels/program/builder.h"

namespace meshloom::kernels {

// Whether a value has a dtype that is copied (a float, or integers of 4 bytes), and whole words.
bool transferable(const TensorType& type);

// x (any shape; a float, or integers of 4 bytes) in memory of kind `to`. It is the one op that reads or writes values of
// MemoryKind::host.
Tensor transfer(Tensor x, hal::MemoryKind to);

// For variants of backends whose copy command reaches both kinds of memory.
Fit fit_copy(const CallView& call, const hal::DeviceInfo& target);
void encode_copy(const EncodeArgs& args);

}  // namespace meshloom::kernels
