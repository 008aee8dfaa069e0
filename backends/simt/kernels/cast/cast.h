// The cast that other kernels record where they have no room to round what they write.
#pragma once

#include "kernels/core/variant.h"

namespace meshloom::backends::simt {

// Records the cast of a tensor from one float type to another.
void record_cast(const kernels::EncodeArgs& args, const kernels::TensorType& from_type,
                 const kernels::TensorType& to_type, const hal::Binding& from, const hal::Binding& to);

}  // namespace meshloom::backends::simt
