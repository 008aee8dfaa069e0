// Moves parts of expressions into others.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/elementwise/expression.h"

namespace meshloom::kernels {

// Adds what `root` of `from` depends on to `to` and returns its node there. `done` has one entry per node of
// `from`: its node in `to`, or -1 where not yet copied. Inputs are renumbered by `input_map` (empty:
// unchanged).
std::int32_t copy_into(Expression& to, const Expression& from, std::int32_t root,
                       std::vector<std::int32_t>& done, const std::vector<std::int32_t>& input_map = {});

// Only the nodes that the roots need, in the order in which they need them; simplified again.
Expression compact(const Expression& expression);

}  // namespace meshloom::kernels
