// Where the ranks of a job stand in its mesh.
//
// Ranks are numbered with the last axis fastest: of a mesh data=2, model=2 ranks 0 and 1 differ in model only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

struct MeshAxis {
  std::string name;  // islands, pipeline, data, expert, fsdp, seq, model
  std::int64_t size = 1;
};

// The axes that a mesh may have, in order.
enum class AxisName : std::uint8_t { islands, pipeline, data, expert, fsdp, seq, model };
constexpr int kAxes = 7;
std::string_view to_string(AxisName axis);

// A set of axes.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(AxisName axis) : bits_(static_cast<std::uint8_t>(1U << static_cast<unsigned>(axis))) {}
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(AxisName axis) const { return !(*this & AxisSet(axis)).empty(); }
  constexpr AxisSet operator|(AxisSet other) const { return of(bits_ | other.bits_); }
  constexpr AxisSet operator&(AxisSet other) const { return of(bits_ & other.bits_); }
  constexpr AxisSet operator-(AxisSet other) const { return of(bits_ & ~other.bits_); }
  AxisSet& operator|=(AxisSet other) { return *this = *this | other; }
  bool operator==(const AxisSet&) const = default;
  bool operator<(const AxisSet& other) const { return bits_ < other.bits_; }
  // In the order in which axes cut a dimension, the outermost first: that of the enumeration, but for expert, which comes behind
  // data and fsdp, so that rows that are gathered over it lie side by side.
  std::vector<AxisName> list() const;

 private:
  static constexpr AxisSet of(unsigned bits) {
    AxisSet set;
    set.bits_ = static_cast<std::uint8_t>(bits);
    return set;
  }
  std::uint8_t bits_ = 0;
};
// The axes that divide the rows of a micro-batch.
constexpr AxisSet kRowAxes = AxisSet(AxisName::data) | AxisName::expert | AxisName::fsdp;
// Those of the axes that come before this one.
AxisSet in_front(AxisSet axes, AxisName of);
// "data,fsdp", the names as list() has them; "" = none.
std::string to_string(AxisSet axes);
// Throws Error on an unknown name.
AxisSet axes_from_string(std::string_view names);

// A part of a line of elements.
struct Range {
  std::int64_t first = 0, count = 0;
  bool operator==(const Range&) const = default;
};
// Part `place` of `places` of a range: as equal as whole elements can be.
Range part_of(Range range, std::int64_t places, std::int64_t place);

// Which tokens of a sequence the n ranks of the axis seq have: one run after another, or each two of 2n runs, that of its place
// and that of its place counted from the end, so that under a causal mask all have as much to attend to.
enum class SequenceOrder : std::uint8_t { contiguous, zigzag };
std::string_view to_string(SequenceOrder order);
// Throws Error on an unknown name.
SequenceOrder sequence_order_from_string(std::string_view name);

// A mesh as one of its ranks sees it.
class Topology {
 public:
  // Axes that are missing have size 1. Throws Error on an unknown or repeated axis, a size below 1, more than 2^31 - 1
  // ranks, and a rank outside.
  explicit Topology(const std::vector<MeshAxis>& axes = {}, int rank = 0);
  // The same where ranks have unequal rows: `shares` are those of a micro-batch by place over kRowAxes; empty = equal. Throws
  // Error for another number of them, and below 1.
  Topology with_shares(std::vector<std::int64_t> shares) const;
  // The same where the axis seq, if there is one, cuts in this order.
  Topology with_order(SequenceOrder order) const;

  int rank() const { return rank_; }
  int ranks() const { return size(all()); }
  AxisSet all() const;  // the axes of more than one rank
  int size(AxisSet axes) const;
  // This rank's place in its group over these axes.
  int place(AxisSet axes) const { return place_of(rank_, axes); }
  int place_of(int rank, AxisSet axes) const;
  const std::vector<std::int64_t>& shares() const { return shares_; }
  // Whether these axes cut a dimension in zigzag: seq is one of them, and its order.
  bool zigzag(AxisSet axes) const {
    return order_ == SequenceOrder::zigzag && (axes & all()).has(AxisName::seq);
  }
  // How far apart the numbers of two ranks are that are neighbours along this axis.
  std::int64_t stride(AxisName axis) const;
  // The ranks that differ from this one in these axes only, by place.
  std::vector<int> group(AxisSet axes) const;
  std::string text() const;  // "data=2,fsdp=2"; "1 rank" where there is one only

 private:
  int coordinate(int rank, AxisName axis) const;
  std::vector<std::int64_t> sizes_ = std::vector<std::int64_t>(kAxes, 1);
  std::vector<std::int64_t> shares_;
  SequenceOrder order_ = SequenceOrder::contiguous;
  int rank_ = 0;
};

}  // namespace meshloom::trainer
