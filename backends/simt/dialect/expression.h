// Expressions as text of kernels.
#pragma once

#include <functional>
#include <string>

#include "kernels/elementwise/expression.h"

namespace meshloom::backends::simt {

// The steps of kernels/expression.inc, one per node: node n becomes the float t<n>. `read` gives the step
// that makes a node of an input.
std::string steps(const kernels::Expression& expression,
                  const std::function<std::string(int node, int input)>& read);
// The same with inputs that the kernel has in variables: x0, x1, ...
std::string steps(const kernels::Expression& expression);

}  // namespace meshloom::backends::simt
