// How busy the loops of a kernel keep a SIMD of AMD's RDNA2, RDNA3 and RDNA4 GPUs, from the listing alone.
// Counted: the cycles in which vector instructions issue, by instruction and width of the wave; those of local memory at its
// full rate; widths of loads; waits. Not counted: latencies, bank conflicts, caches, the rate of device memory, the
// instruction cache, and branches, each of which is taken to fall through. docs/inspecting-kernels.md has the numbers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backends/vulkan/inspect/rdna_listing.h"
#include "hal/inspection.h"

namespace meshloom::backends::vulkan::rdna {

struct Family {
  std::string_view name;   // in RADV's name of the device: "NAVI31"
  int generation;          // 2, 3, 4
  std::int64_t registers;  // of a SIMD's lane
  std::int64_t
      granule;  // registers are allocated in multiples of this in waves of 32, of half of it in those of 64
};

// By RADV's name of a device, "AMD Radeon RX 7900 XTX (RADV NAVI31)"; nullptr = not one of these.
const Family* family_of(std::string_view device_name);

// The waves of a kernel that one SIMD holds at a time: as many workgroups as the registers of four SIMDs and the 128 KiB of
// local memory of their workgroup processor have room for, and at most 16 waves.
double waves_of(const Family& family, std::int64_t registers, std::int64_t local_bytes,
                std::int64_t workgroup, std::int64_t wave);

struct Cost {
  double issue = 0;     // cycles of the SIMD's vector issue
  double multiply = 0;  // of these, multiplying
};
// `wave` = invocations, 32 or 64.
Cost cost_of(const Instruction& instruction, const Family& family, std::int64_t wave);

// One entry per loop, in the listing's order; a listing without loops has one entry, "(no loop)", for all of it. One is main.
// Throws Error as parse_listing does.
std::vector<hal::LoopInspection> inspect_loops(std::string_view listing, const Family& family,
                                               std::int64_t wave);

}  // namespace meshloom::backends::vulkan::rdna
