// Which fields of a recipe may differ: between the ranks of a job, and from one part of a run to the next.
#pragma once

#include <cstdint>
#include <string_view>

namespace meshloom::trainer {

struct FieldRule {
  std::string_view path;  // a field, or a node with all that it holds
  // Every rank may have its own: it says where and how a rank computes, and nothing of what ranks compute or move.
  bool per_rank = false;
  enum class Resume : std::uint8_t {
    fixed,     // another value makes it another run
    rounding,  // changes results by rounding only
    free       // changes no number of any step
  } resume = Resume::fixed;
};

// The rule of a field, by its path. Fields that the table does not name must agree, and are fixed.
const FieldRule& field_rule(std::string_view path);

}  // namespace meshloom::trainer
