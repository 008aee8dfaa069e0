#include "trainer/checkpoint/non_finite.h"

#include <fmt/format.h>

#include <cstring>

namespace meshloom::trainer {
namespace {

// How many words have every bit of the exponent set: infinities and NaNs.
template <typename Word>
std::int64_t count_words(std::span<const std::byte> data, Word exponent) {
  std::int64_t count = 0;
  for (std::size_t at = 0; at + sizeof(Word) <= data.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data.data() + at, sizeof word);
    count += (word & exponent) == exponent;
  }
  return count;
}

}  // namespace

void NonFiniteCounter::add_values(const std::string& name, hal::DType dtype,
                                  std::span<const std::byte> data) {
  std::int64_t count = 0;
  if (dtype == hal::DType::f32) count = count_words<std::uint32_t>(data, 0x7f800000u);
  if (dtype == hal::DType::f16) count = count_words<std::uint16_t>(data, 0x7c00u);
  if (dtype == hal::DType::bf16) count = count_words<std::uint16_t>(data, 0x7f80u);
  if (count > 0 && first_.empty()) first_ = name;
  count_ += count;
}

std::string NonFiniteCounter::text() const {
  return fmt::format("{} {} not finite, the first in '{}'", count_,
                     count_ == 1 ? "value that is" : "values that are", first_);
}

}  // namespace meshloom::trainer
