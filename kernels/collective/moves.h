// Collectives as lists of moves: data that the executor carries out, and that counters and planners walk.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace meshloom::kernels::collective {

// One range of one tensor that a place of a group sends to, or receives from, another place. A move to oneself is a
// copy: an out followed by an in, both with one's own place as the peer.
// With a count above 1 it stands for as many moves, of the peers from `peer` on, each `step` bytes behind the one before: so
// that the list of a collective over thousands of places is short.
struct Move {
  int peer = 0;      // a place in the group: 0 to n - 1
  bool out = false;  // sent, else received
  int tensor = 0;    // kInput or kOutput
  std::int64_t offset = 0, bytes = 0;
  int count = 1;
  std::int64_t step = 0;
  bool operator==(const Move&) const = default;
};
constexpr int kInput = 0, kOutput = 1;

// How much each place of a group has, as runs of places that have equally much.
class Sizes {
 public:
  struct Run {
    std::int64_t count = 0, size = 0;
    bool operator==(const Run&) const = default;
  };
  Sizes() = default;
  Sizes(const std::vector<std::int64_t>& of_places);
  Sizes(std::initializer_list<std::int64_t> of_places) : Sizes(std::vector<std::int64_t>(of_places)) {}
  static Sizes equal(std::int64_t places, std::int64_t size);
  // From {count, size, count, size, ...}. Throws Error for an odd number, a count below 1 and a negative size.
  static Sizes from_pairs(const std::vector<std::int64_t>& pairs);
  std::vector<std::int64_t> pairs() const;
  std::vector<std::int64_t> list() const;  // one entry a place

  void add(std::int64_t count, std::int64_t size);  // behind the others
  const std::vector<Run>& runs() const { return runs_; }
  std::int64_t places() const;
  std::int64_t total() const;
  std::int64_t at(std::int64_t place) const;      // throws Error for a place outside
  std::int64_t before(std::int64_t place) const;  // the sum over the places in front of it
  Sizes times(std::int64_t factor) const;
  bool operator==(const Sizes&) const = default;

 private:
  std::vector<Run> runs_;
};

// Where the parts of n places stand in what all of them have: that of place i is part i of n, or, in zigzag, its halves are those
// numbered i and 2n - 1 - i of 2n.
enum class Order : std::uint8_t { contiguous, zigzag };

// What the place `place` of a group of n does. The k-th move out of i to j is the k-th move of j in from i. Nobody
// moves 0 bytes. Peers come in the order of their distance, so that not all send to the same place first. Sizes are
// bytes, not negative. All throw Error for a place outside the group, or sizes of another number than it needs.

// The input of place i has sizes[i] bytes; the output is the inputs of all, in the order of places.
std::vector<Move> all_gather(std::span<const std::int64_t> sizes, int place);

// sizes[i * n + j] bytes go from place i to place j. The input of i is what it sends to 0, 1, ..., n - 1; its output is
// what it gets from 0, 1, ..., n - 1.
std::vector<Move> all_to_all(std::span<const std::int64_t> sizes, int n, int place);

// The same as all_gather, and as the all_to_all in which every place sends sizes[j] to j, in as few moves with a count as it takes.
// In zigzag the parts of the output, or of the input, stand in that order; sizes must be equal and even then.
std::vector<Move> gather_runs(const Sizes& sizes, int place, Order order = Order::contiguous);
std::vector<Move> scatter_runs(const Sizes& sizes, int place, Order order = Order::contiguous);
// The place `root` gets the inputs of all places, which have sizes[i] bytes, behind one another; the others get nothing.
std::vector<Move> gather_to(const Sizes& sizes, int root, int place);
// The place i gets the i-th of the parts of the input of the place `root`, sizes[i] bytes; the others send nothing.
std::vector<Move> scatter_from(const Sizes& sizes, int root, int place);
// The moves that such a list of the place `place` of n stands for, in the order of the lists above.
std::vector<Move> expanded(const std::vector<Move>& moves, int n, int place);

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
