// Packs byte ranges that live for a while into as little memory as possible.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// Lives from call `first` to call `last`, both included.
struct Lifetime {
  int first = 0, last = 0;
  std::int64_t bytes = 0;
};

struct Packing {
  std::vector<Placement> places;          // by lifetime; Placement::block counts from 0
  std::vector<std::int64_t> block_bytes;  // multiples of the alignment
  std::int64_t total() const;
};

// Two lifetimes that meet in time never meet in memory. Offsets are multiples of `alignment`; no block
// exceeds `max_block_bytes`, which must hold the largest lifetime. Greedy: largest first, and longest first,
// each into the tightest gap; the smaller result wins.
Packing pack(const std::vector<Lifetime>& lifetimes, std::int64_t alignment, std::int64_t max_block_bytes);

// Most bytes alive at once, each rounded up to the alignment: no packing can be smaller.
std::int64_t least_bytes(const std::vector<Lifetime>& lifetimes, std::int64_t alignment);

// Throws Error when two lifetimes that meet in time overlap, or one sticks out of its block.
void check_packing(const std::vector<Lifetime>& lifetimes, const Packing& packing);

}  // namespace meshloom::trainer
