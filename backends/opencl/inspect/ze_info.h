// What Intel's compiler says of a kernel in the section .ze_info of a binary (zebin), which is YAML.
#pragma once

#include <string_view>

#include "hal/inspection.h"

namespace meshloom::backends::opencl {

// Sets the subgroup, registers (as many as a hardware thread may use), local and private memory, and statistics. A text of
// another kind leaves all as it was.
void read_ze_info(std::string_view text, hal::Inspection& inspection);

}  // namespace meshloom::backends::opencl
