#include "backends/cpu/kernels/matmul_scratch.h"

#include <cstdlib>
#include <memory>
#include <new>

namespace meshloom::backends::cpu {
namespace {

constexpr std::int64_t kFloats = 32;  // pieces start at multiples of 128 bytes

struct Free {
  void operator()(float* data) const { std::free(data); }
};

}  // namespace

std::vector<float*> thread_scratch(std::initializer_list<std::int64_t> floats) {
  thread_local std::unique_ptr<float, Free> memory;
  thread_local std::int64_t held = 0;
  std::int64_t wanted = 0;
  for (const std::int64_t count : floats) wanted += (count + kFloats - 1) / kFloats * kFloats;
  if (wanted > held) {
    held = 0;
    memory.reset();
    memory.reset(static_cast<float*>(
        std::aligned_alloc(kFloats * sizeof(float), static_cast<std::size_t>(wanted) * sizeof(float))));
    if (!memory) throw std::bad_alloc();
    held = wanted;
  }
  std::vector<float*> pieces;
  std::int64_t at = 0;
  for (const std::int64_t count : floats) {
    pieces.push_back(memory.get() + at);
    at += (count + kFloats - 1) / kFloats * kFloats;
  }
  return pieces;
}

}  // namespace meshloom::backends::cpu
