// Philox random words of many counters at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshloom::backends::cpu {

constexpr std::size_t kPhiloxBatch = 64;

// words[j * kPhiloxBatch + i] becomes word j of philox({low[i], high[i], c2, c3}, key), for every i below
// `count`, which is at most kPhiloxBatch (kernels/core/philox.h); the words after those may be overwritten.
void philox_batch(std::size_t count, const std::uint32_t* low, const std::uint32_t* high, std::uint32_t c2,
                  std::uint32_t c3, std::uint32_t k0, std::uint32_t k1, std::uint32_t* words);

}  // namespace meshloom::backends::cpu
