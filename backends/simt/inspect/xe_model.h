// What is so of Intel's Xe GPUs whichever compiler makes their code.
#pragma once

#include <cstdint>
#include <string_view>

namespace meshloom::backends::simt::isa {

struct Xe {
  std::string_view family;      // "dg2", as profiles name it
  int native;                   // f32 lanes of a vector engine
  std::int64_t register_bytes;  // of one register
  std::int64_t engines, local;  // of a Xe core; the bytes are the least that a core has
};

// nullptr = not one of these.
const Xe* xe_of(std::string_view family);

// The threads of a kernel that a vector engine holds at a time: eight with up to 128 registers each, else four, and fewer where
// local memory has no room for their workgroups. A thread is a whole subgroup.
double xe_waves_of(const Xe& xe, std::int64_t registers, std::int64_t local_bytes, std::int64_t workgroup,
                   std::int64_t subgroup);

// Cycles for which an instruction "dpas.8x4" keeps the matrix unit of a vector engine busy, of depth 8 and repeat count 4, which is the
// rows of the product; 0 = another instruction. Both families take two cycles a row of 16-bit operands: 512 engines of an A770 make
// 131 TFLOP/s at about 2.1 GHz, which are 64 products a cycle, and a row has 8 x 16; 160 of a B580 make 117 at 2.85 GHz, which are
// 128, and a row has 16 x 16. Operands of 8 bits have twice the depth at twice the rate.
double dpas_cycles(std::string_view name);

}  // namespace meshloom::backends::simt::isa
