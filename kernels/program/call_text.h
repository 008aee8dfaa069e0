// Calls as text, for people and as keys: equal calls have equal texts, and all that `fit` may depend on is in
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/program/types.h"

namespace meshloom::kernels {

// "f32(128, 576), f32(49152, 576) {trans_b=true}"
std::string inputs_text(const std::vector<TensorType>& inputs, const Attrs& attrs);
// The same behind the op's name.
std::string call_text(std::string_view op, const std::vector<TensorType>& inputs, const Attrs& attrs);

}  // namespace meshloom::kernels
