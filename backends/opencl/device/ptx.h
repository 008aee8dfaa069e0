// What kernels say to NVIDIA's compiler in PTX, since OpenCL C has no words for it. The driver gives a program's PTX as its binary, and
// takes PTX as a binary too.
//
// Instructions of PTX that OpenCL's compiler for NVIDIA does not let pass, since it makes PTX for "sm_90" while they belong to
// "sm_90a", which has the instructions of that one generation alone (PTX ISA, "Target ISA"). A kernel writes such an instruction as a
// comment, in lines of inline PTX that begin with "//sm_90a ".
//
// Registers: a kernel with the define MIN_WORKGROUPS gets so few that as many of its workgroups run at once on a multiprocessor (PTX ISA,
// ".minnctapersm"; the second of CUDA's __launch_bounds__).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hal/device.h"

namespace meshloom::backends::opencl {

// The PTX for sm_90a, with those comments become instructions; nothing where there is none.
std::optional<std::string> ptx_for_sm_90a(std::string_view ptx);

// MIN_WORKGROUPS of a kernel; 0 = as many as there may be.
int min_workgroups(const hal::ExecutableSpec& spec);
// The PTX with that said behind each workgroup size that it gives; nothing where it gives none.
std::optional<std::string> ptx_with_min_workgroups(std::string_view ptx, int workgroups);

}  // namespace meshloom::backends::opencl
