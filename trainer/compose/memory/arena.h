// Places byte ranges with known lifetimes into as little memory as possible.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// A byte range that lives from call `first` to call `last`, both included.
struct Lifetime {
  int first = 0, last = 0;
  std::int64_t bytes = 0;
};

struct ArenaLayout {
  std::vector<Placement> places;          // by lifetime; Placement::block counts from 0
  std::vector<std::int64_t> block_bytes;  // multiples of the alignment
  std::int64_t total() const;
};

// Ranges that live at the same time never overlap. Offsets are multiples of `alignment`; no block exceeds
// `max_block_bytes`, into which the largest range must fit. Two greedy orders are tried, largest first and
// longest-lived first, each range goes into the tightest gap, and the smaller result wins.
ArenaLayout plan_arena(const std::vector<Lifetime>& lifetimes, std::int64_t alignment,
                       std::int64_t max_block_bytes);

// The largest number of bytes alive at the same time, each range rounded up to the alignment: no layout can
// be smaller.
std::int64_t min_bytes(const std::vector<Lifetime>& lifetimes, std::int64_t alignment);

// Throws Error when two ranges that live at the same time overlap, or one lies partly outside of its block.
void check_arena(const std::vector<Lifetime>& lifetimes, const ArenaLayout& layout);

}  // namespace meshloom::trainer
