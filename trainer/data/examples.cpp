#include "trainer/data/examples.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "hal/error.h"

namespace meshloom::trainer {

std::uint64_t hash_of(const Example& example) {
  const std::uint64_t tokens = XXH64(example.tokens.data(), example.tokens.size() * sizeof(std::int32_t), 0);
  const std::uint64_t masked = XXH64(example.loss_mask.data(), example.loss_mask.size(), tokens);
  if (example.rejected > 0) {
    const std::array<double, 2> reference = example.reference.value_or(std::array<double, 2>{});
    const std::uint64_t second = XXH64(&example.rejected, sizeof example.rejected, masked);
    return example.reference ? XXH64(reference.data(), sizeof reference, second) : second;
  }
  if (example.source.empty()) return masked;
  return XXH64(example.source.data(), example.source.size() * sizeof(std::int32_t), masked);
}

std::int64_t ExampleRange::tokens() const {
  std::int64_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += examples->length(i);
  return sum;
}

std::uint64_t ExampleRange::fingerprint() const {
  std::uint64_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint64_t both[] = {sum, examples->hash(i)};
    sum = XXH64(both, sizeof both, 0);
  }
  return sum;
}

std::pair<ExampleRange, ExampleRange> split(const Examples& all, const Examples* eval, double eval_fraction) {
  const std::int64_t size = all.size();
  if (eval) return {{&all, 0, size}, {eval, 0, eval->size()}};
  if (eval_fraction == 0) return {{&all, 0, size}, {}};
  if (size < 2)
    throw hal::Error(
        "data",
        "must hold at least two examples, one of them to hold out; input.eval_fraction=0 holds out none",
        std::to_string(size));
  const auto held = static_cast<std::int64_t>(std::llround(static_cast<double>(size) * eval_fraction));
  const std::int64_t end = size - std::clamp<std::int64_t>(held, 1, size - 1);
  return {{&all, 0, end}, {&all, end, size}};
}

}  // namespace meshloom::trainer
