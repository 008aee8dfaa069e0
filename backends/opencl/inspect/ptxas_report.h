// What NVIDIA's assembler says of a kernel (ptxas -v).
#pragma once

#include <cstdint>
#include <string_view>

#include "hal/inspection.h"

namespace meshloom::backends::opencl {

// Sets registers, spills (the words that are stored), private and local memory, and statistics, where the text says them.
void read_ptxas_report(std::string_view text, hal::Inspection& inspection);

// What a multiprocessor holds. Source: CUDA C++ Programming Guide, technical specifications per compute capability.
struct Multiprocessor {
  std::string_view family;
  std::int64_t warps, groups, local;  // local memory in bytes
  double flops_per_cycle;             // of a quarter's tensor cores, f16 with sums in f32
  double int8_per_cycle;              // of bytes with sums of 32 bits
};

// The warps of a kernel that a quarter of a multiprocessor holds at a time.
double warps_of(const Multiprocessor& sm, std::int64_t registers, std::int64_t local_bytes,
                std::int64_t workgroup);

}  // namespace meshloom::backends::opencl
