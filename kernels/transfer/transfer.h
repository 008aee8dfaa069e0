// A copy of a tensor in the other kind of memory, with the same bits.
#pragma once

#include "hal/memory_kind.h"
#include "kernels/program/builder.h"

namespace meshloom::kernels {

// x (any shape and dtype) in memory of kind `to`. It is the one op that reads or writes values of MemoryKind::host.
Tensor transfer(Tensor x, hal::MemoryKind to);

}  // namespace meshloom::kernels
