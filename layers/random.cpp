#include "layers/random.h"

#include <algorithm>
#include <cmath>

namespace meshloom::layers {
namespace {

constexpr double kTwoPi = 6.283185307179586476925;

// 53 random bits as (0, 1]; never 0, so that its logarithm is finite.
double unit(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits + 1) * 0x1p-53;
}

}  // namespace

std::array<std::uint32_t, 4> philox(Key key, std::uint64_t counter, std::uint64_t stream) {
  std::array<std::uint32_t, 4> c = {
      static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
      static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  auto k0 = static_cast<std::uint32_t>(key.value), k1 = static_cast<std::uint32_t>(key.value >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

Key fold(Key key, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  // The length sets folding apart from drawing, whose stream is small.
  const auto bits = philox(key, hash, ~static_cast<std::uint64_t>(name.size()));
  return {static_cast<std::uint64_t>(bits[0]) << 32 | bits[1]};
}

Key fold_path(Key key, std::string_view path) {
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    key = fold(key, path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return key;
}

double uniform(Key key, std::uint64_t index, std::uint64_t stream) {
  const auto bits = philox(key, index, stream);
  return unit(bits[0], bits[1]);
}

void normal(Key key, std::uint64_t begin, std::int64_t count, float* into) {
  // One block of 128 bits makes elements 2b and 2b + 1.
  const std::uint64_t end = begin + static_cast<std::uint64_t>(count);
  for (std::uint64_t block = begin / 2; block * 2 < end; ++block) {
    const auto bits = philox(key, block);
    const double radius = std::sqrt(-2.0 * std::log(unit(bits[0], bits[1])));
    const double angle = kTwoPi * unit(bits[2], bits[3]);
    if (block * 2 >= begin) into[block * 2 - begin] = static_cast<float>(radius * std::cos(angle));
    if (block * 2 + 1 < end) into[block * 2 + 1 - begin] = static_cast<float>(radius * std::sin(angle));
  }
}

}  // namespace meshloom::layers
