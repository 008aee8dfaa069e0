// Which axes of a mesh cut the dimensions that the letters of a call's partition rule stand for (kernels/core/partition_rule.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "kernels/core/catalog.h"
#include "kernels/core/partition_rule.h"
#include "kernels/program/program.h"
#include "trainer/mesh/spec.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// Which axes of the mesh cut the letters of a call.
class LetterAxes {
 public:
  // Where seq is among the axes, it cuts each of `blocks` blocks.
  void give(char letter, AxisSet axes, std::int64_t blocks = 1) {
    if (letter == '.') return;
    axes = axes - used_;
    if (axes.empty()) return;
    used_ |= axes;
    if (axes.has(AxisName::seq)) blocks_ = blocks;
    by_letter_[letter] |= axes;
  }
  AxisSet of(char letter) const {
    const auto found = by_letter_.find(letter);
    return found == by_letter_.end() ? AxisSet() : found->second;
  }
  void set(char letter, AxisSet axes) { by_letter_[letter] = axes; }
  const std::map<char, AxisSet>& all() const { return by_letter_; }
  std::int64_t blocks_of(char letter) const { return of(letter).has(AxisName::seq) ? blocks_ : 1; }

 private:
  std::int64_t blocks_ = 1;
  std::map<char, AxisSet> by_letter_;
  AxisSet used_;  // an axis cuts one letter
};

// Whether axes cut n places into parts of one size.
bool equal_parts(std::int64_t n, AxisSet axes, const Topology& mesh);
// Whether a dimension is less than one place for every rank, which then share places.
bool shares_places(std::int64_t size, AxisSet axes, const Topology& mesh);
// The place of such a dimension that this rank uses.
Range shared_place(std::int64_t size, AxisSet axes, const Topology& mesh);

// The places of b where "(bs)" is one dimension.
std::int64_t outer_places(char letter, const kernels::PartitionRule& rule, const kernels::CallTypes& types);
// Gives axes that cut a dimension to its letter, or those of "(bs)": to s the axis seq where it cuts every place of b.
void give_dim(LetterAxes& axes, const kernels::PartitionRule& rule, const kernels::CallTypes& types,
              std::size_t input, std::size_t d, AxisSet given, const Spec& spec);
// Where b has a group's axes behind seq, s none but seq: a dimension "(bs)" cannot be cut otherwise.
void keep_groups(const kernels::PartitionRule& rule, LetterAxes& axes);

// What else is asked whether axes may cut a letter.
using MayCut = std::function<bool(char letter, AxisSet axes)>;
// Takes away axes that do not divide the sizes under a letter.
void keep_divisible(const kernels::Call& call, const kernels::PartitionRule& rule,
                    const kernels::CallTypes& types, const kernels::Catalog& catalog, const Topology& mesh,
                    const MayCut& may_cut, LetterAxes& axes);

// What this rank has of every letter that is cut, as Contract::local is told it.
std::map<char, kernels::Cut> cuts_of_letters(const kernels::PartitionRule& rule,
                                             const kernels::CallTypes& types, const LetterAxes& axes,
                                             const Topology& mesh);

}  // namespace meshloom::trainer
