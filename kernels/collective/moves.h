// Collectives as lists of moves: data that the executor carries out, and that counters and planners walk.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace meshloom::kernels::collective {

// One range of one tensor that a place of a group sends to, or receives from, another place. A move to oneself is a
// copy: an out followed by an in, both with one's own place as the peer.
struct Move {
  int peer = 0;      // a place in the group: 0 to n - 1
  bool out = false;  // sent, else received
  int tensor = 0;    // kInput or kOutput
  std::int64_t offset = 0, bytes = 0;
  bool operator==(const Move&) const = default;
};
constexpr int kInput = 0, kOutput = 1;

// What the place `place` of a group of n does. The k-th move out of i to j is the k-th move of j in from i. Nobody
// moves 0 bytes. Peers come in the order of their distance, so that not all send to the same place first. Sizes are
// bytes, not negative. All throw Error for a place outside the group, or sizes of another number than it needs.

// The input of place i has sizes[i] bytes; the output is the inputs of all, in the order of places.
std::vector<Move> all_gather(std::span<const std::int64_t> sizes, int place);

// sizes[i * n + j] bytes go from place i to place j. The input of i is what it sends to 0, 1, ..., n - 1; its output is
// what it gets from 0, 1, ..., n - 1.
std::vector<Move> all_to_all(std::span<const std::int64_t> sizes, int n, int place);

// The input of place i has sizes[i] bytes, and becomes the output of place (i + by) mod n; `by` may have any sign.
std::vector<Move> shift(std::span<const std::int64_t> sizes, int by, int place);

// Bytes of a tensor, kInput or kOutput, of one place's list.
std::int64_t tensor_bytes(const std::vector<Move>& moves, int tensor);
// Bytes that go out to other places, or come in from them.
std::int64_t moved_bytes(const std::vector<Move>& moves, int place, bool out);

// The first thing in which the lists of all places do not fit together, or "": each move out must have its move in, of
// the same bytes and in the same order; moves in must not overlap, and stay within `output_bytes` of their place.
std::string mismatch(std::span<const std::vector<Move>> lists, std::span<const std::int64_t> output_bytes);

}  // namespace meshloom::kernels::collective
