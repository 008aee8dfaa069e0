// How the dimensions of a call's inputs and outputs correspond.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/core/contract.h"

namespace meshloom::kernels {

// What Contract::partition says of a call: per input and output its letters, one per dimension.
struct PartitionRule {
  std::vector<std::string> inputs, outputs;
  // The letters in braces behind them, whose shards have inputs and outputs of their own ("n.{n}"); "" = none.
  std::vector<std::string> own_inputs, own_outputs;
  // Of a dimension that has two letters, "(bs)", the second: every place of b has all places of s behind one another. The
  // first stands above; '.' = the dimension has one.
  std::vector<std::string> inner_inputs, inner_outputs;

  // The letters that are cut into equal parts only, multiples of so many places ("q32", "s1").
  std::map<char, std::int64_t> units;

  std::set<char> own_letters() const;  // all in braces
};

// Throws Error (where = `where`) where a rule does not suit its call: it needs one letter (or '.', or "(bs)") per dimension of
// every input and output, and sizes under one letter that are equal or multiples of each other.
PartitionRule partition_rule(const Contract& contract, const CallView& call, const std::string& where);

}  // namespace meshloom::kernels
