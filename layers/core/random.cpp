#include "layers/core/random.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/core/philox.h"

namespace meshloom::layers {
namespace {

// 53 random bits as a number in (0, 1]. It is never 0, so that its logarithm is finite.
double unit(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits + 1) * 0x1p-53;
}

// -2 ln((bits + 1/2) / 2^32) in f32. The logarithm of the mantissa is computed by the series of artanh around 1.
float minus_two_log(std::uint32_t bits) {
  const float u = std::max(
      (static_cast<float>(bits >> 8) * 256.0f + static_cast<float>(bits & 255u)) * 0x1p-32f, 0x1p-33f);
  const auto raw = std::bit_cast<std::uint32_t>(u);
  const std::uint32_t shifted = raw - 0x3f3504f3u;  // the mantissa comes to lie in [sqrt(1/2), sqrt(2))
  const auto exponent = static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
  const auto m = std::bit_cast<float>((shifted & 0x007fffffu) + 0x3f3504f3u);
  const float s = (m - 1.0f) / (m + 1.0f), q = s * s;
  const float series = 2.0f * s * (1.0f + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9)))));
  return -2.0f * (exponent * 0.693147180559945f + series);
}

// Cosine and sine of the angle 2 pi bits / 2^32: the nearest quarter turn, and Taylor series for the remaining angle.
void cos_sin(std::uint32_t bits, float& cosine, float& sine) {
  const std::uint32_t quarter = (bits + 0x20000000u) >> 30;  // 4 stands for a whole turn
  const auto left = static_cast<std::int32_t>(bits - (quarter << 30));
  const float a = static_cast<float>(left) * (1.5707963267948966f * 0x1p-30f), q = a * a;
  const float s = a * (1.0f - q * (1.0f / 6 - q * (1.0f / 120 - q * (1.0f / 5040 - q * (1.0f / 362880)))));
  const float c =
      1.0f - q * (0.5f - q * (1.0f / 24 - q * (1.0f / 720 - q * (1.0f / 40320 - q * (1.0f / 3628800)))));
  const bool odd = quarter & 1u;
  cosine = odd ? s : c;
  sine = odd ? c : s;
  cosine = (quarter + 1u) & 2u ? -cosine : cosine;
  sine = quarter & 2u ? -sine : sine;
}

template <std::size_t N>
void normal_blocks(Key key, std::uint64_t first, float* into) {
  const auto k0 = static_cast<std::uint32_t>(key.value), k1 = static_cast<std::uint32_t>(key.value >> 32);
  std::uint32_t words[4][N];
  for (std::size_t i = 0; i < N; ++i) {
    const std::uint64_t counter = first + i;
    const kernels::PhiloxWords w = kernels::philox(
        {{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0}}, k0, k1);
    for (int j = 0; j < 4; ++j) words[j][i] = w.v[j];
  }
  float made[4][N];
  for (int pair = 0; pair < 4; pair += 2)
    for (std::size_t i = 0; i < N; ++i) {
      float cosine, sine;
      cos_sin(words[pair + 1][i], cosine, sine);
      const float radius = std::sqrt(minus_two_log(words[pair][i]));
      made[pair][i] = radius * cosine;
      made[pair + 1][i] = radius * sine;
    }
  for (std::size_t i = 0; i < N; ++i)
    for (int j = 0; j < 4; ++j) into[4 * i + static_cast<std::size_t>(j)] = made[j][i];
}

}  // namespace

std::array<std::uint32_t, 4> philox(Key key, std::uint64_t counter, std::uint64_t stream) {
  const kernels::PhiloxWords c =
      kernels::philox({{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                        static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}},
                      static_cast<std::uint32_t>(key.value), static_cast<std::uint32_t>(key.value >> 32));
  return {c.v[0], c.v[1], c.v[2], c.v[3]};
}

Key fold_in(Key key, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  // The stream is a large number that depends on the length, so that it differs from the small ones that uniform() uses.
  const auto bits = philox(key, hash, ~static_cast<std::uint64_t>(name.size()));
  return {static_cast<std::uint64_t>(bits[0]) << 32 | bits[1]};
}

Key fold_in_path(Key key, std::string_view path) {
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    key = fold_in(key, path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return key;
}

double uniform(Key key, std::uint64_t index, std::uint64_t stream) {
  const auto bits = philox(key, index, stream);
  return unit(bits[0], bits[1]);
}

void normal(Key key, std::uint64_t begin, std::int64_t count, float* into) {
  // One block of 128 bits gives four elements. Blocks are computed in chunks, by loops that a compiler vectorises.
  constexpr std::size_t kBlocks = 64;
  float made[4 * kBlocks];
  const std::uint64_t end = begin + static_cast<std::uint64_t>(count);
  for (std::uint64_t first = begin / 4; first * 4 < end; first += kBlocks) {
    normal_blocks<kBlocks>(key, first, made);
    const std::uint64_t from = std::max(begin, first * 4), to = std::min(end, (first + kBlocks) * 4);
    std::copy(made + (from - first * 4), made + (to - first * 4), into + (from - begin));
  }
}

}  // namespace meshloom::layers
