#include "kernels/program/sizes.h"

#include <optional>
#include <span>

#include "hal/error.h"

namespace meshloom::kernels {
namespace {

std::optional<std::int64_t> bounded_product(std::span<const std::int64_t> factors) {
  bool zero = false, large = false;
  std::int64_t count = 1;
  for (const std::int64_t factor : factors) {
    if (factor < 0) return std::nullopt;
    zero = zero || factor == 0;
    large = large || __builtin_mul_overflow(count, factor, &count) || count > kMaxElements;
    if (large || zero) count = 1;
  }
  if (zero) return 0;
  if (large) return std::nullopt;
  return count;
}

constexpr const char* kRule = "a tensor has at most 2^48 = 281474976710656 elements";

}  // namespace

std::int64_t product(const std::string& where, std::initializer_list<std::int64_t> factors) {
  if (const auto count = bounded_product({factors.begin(), factors.size()})) return *count;
  std::string text;
  for (const std::int64_t factor : factors) text += (text.empty() ? "" : " x ") + std::to_string(factor);
  throw hal::Error(where, kRule, text);
}

std::int64_t sum(const std::string& where, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (!__builtin_add_overflow(a, b, &result)) return result;
  throw hal::Error(where, "a sum of bytes must be below 2^63", std::to_string(a) + " + " + std::to_string(b));
}

bool is_countable(const TensorType& type) { return bounded_product(type.shape).has_value(); }

void require_countable(const std::string& where, const TensorType& type) {
  if (!is_countable(type)) throw hal::Error(where, kRule, to_string(type));
}

std::int64_t elements(const Shape& shape) {
  if (const auto count = bounded_product(shape)) return *count;
  throw hal::Error("tensor", kRule, to_string(shape));
}

}  // namespace meshloom::kernels
