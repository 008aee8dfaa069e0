// The vector instructions chosen at run time.
#pragma once

#include <cstdint>
#include <string>

namespace meshloom::backends::cpu {

struct VectorInfo {
  std::string target;  // "AVX2"
  int lanes;           // f32 elements of a vector
};
VectorInfo vector_info();

// Runs `rounds` of independent multiply-adds in registers; returns the FLOPs done.
double run_fma_loop(std::int64_t rounds);
// Sum of `count` floats, as fast as memory gives them.
float sum_stream(const float* data, std::int64_t count);

}  // namespace meshloom::backends::cpu
