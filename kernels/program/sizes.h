// Sizes that cannot wrap. Shapes come from recipes and from configurations of others; a product that wraps would plan a few
// bytes for what takes more than any machine has.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/program/types.h"

namespace meshloom::kernels {

// Of one tensor: 2 PiB at 8 bytes each, so that bytes and a few tensors' sums stay far below 2^63.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;

// The product of the factors. Throws Error(where, ...) with the factors where one is negative or it is above kMaxElements.
std::int64_t product(const std::string& where, std::initializer_list<std::int64_t> factors);
// a + b. Throws Error(where, ...) where it is not below 2^63.
std::int64_t sum(const std::string& where, std::int64_t a, std::int64_t b);
bool is_countable(const TensorType& type);  // it has at most kMaxElements elements
// Throws Error(where, ...) with the type where it has more than kMaxElements elements.
void require_countable(const std::string& where, const TensorType& type);

}  // namespace meshloom::kernels
