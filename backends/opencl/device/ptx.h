// Instructions of PTX that OpenCL's compiler for NVIDIA does not let pass, since it makes PTX for "sm_90" while they belong to
// "sm_90a", which has the instructions of that one generation alone (PTX ISA, "Target ISA"). The driver takes PTX as a program's
// binary too. So a kernel writes such an instruction as a comment, in lines of inline PTX that begin with "//sm_90a ".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace meshloom::backends::opencl {

// The PTX for sm_90a, with those comments become instructions; nothing where there is none.
std::optional<std::string> ptx_for_sm_90a(std::string_view ptx);

}  // namespace meshloom::backends::opencl
