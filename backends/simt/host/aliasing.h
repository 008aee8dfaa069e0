// Bindings of one dispatch that are the same memory, as where an output takes an input's place. A compiler of SPIR-V takes buffers
// for different memory unless they are declared otherwise (prelude_vulkan.glsl), and a spec's defines say which are: ALIASED_i is 1
// for binding i. Pointers of OpenCL C may always be the same memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hal/device.h"

namespace meshloom::backends::simt {

// Bit i: the bytes of binding i are, all or in part, those of another binding too, and one of the two is written.
std::uint32_t aliased_bindings(std::span<const hal::Binding> bindings);

std::vector<hal::Define> alias_defines(std::uint32_t aliased);

// The bindings that the spec's defines say are aliased, as above.
std::uint32_t declared_aliased(const hal::ExecutableSpec& spec);

}  // namespace meshloom::backends::simt
