// The vector instruction set chosen at run time.
#pragma once

#include <cstdint>
#include <string>

namespace meshloom::backends::cpu {

struct VectorInfo {
  std::string target;  // "AVX2"
  int lanes;           // f32 elements of a vector
};
VectorInfo vector_info();

// Runs `rounds` rounds of independent multiply-adds in registers; returns the FLOPs done.
double run_fma_loop(std::int64_t rounds);
// The sum of `count` floats, read at the speed of memory.
float sum_stream(const float* data, std::int64_t count);

}  // namespace meshloom::backends::cpu
