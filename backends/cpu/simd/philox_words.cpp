#include "backends/cpu/simd/philox_words.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/simd/philox_words.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/highway.h"
#include "kernels/core/philox.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET == HWY_SCALAR
void PhiloxBatch(std::size_t count, const std::uint32_t* low, const std::uint32_t* high, std::uint32_t c2,
                 std::uint32_t c3, std::uint32_t k0, std::uint32_t k1, std::uint32_t* words) {
  for (std::size_t i = 0; i < count; ++i) {
    const kernels::PhiloxWords drawn = kernels::philox({{low[i], high[i], c2, c3}}, k0, k1);
    for (std::size_t j = 0; j < 4; ++j) words[j * kPhiloxBatch + i] = drawn.v[j];
  }
}
#else
using D = hn::CappedTag<std::uint32_t, 16>;
using V = hn::Vec<D>;

// The halves of the products of 32-bit lanes.
HWY_INLINE void Multiply(D d, V x, V by, V& high, V& low) {
  const hn::Repartition<std::uint64_t, D> wide;
  const auto even = hn::MulEven(x, by);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), by);
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

void PhiloxBatch(std::size_t count, const std::uint32_t* low, const std::uint32_t* high, std::uint32_t c2,
                 std::uint32_t c3, std::uint32_t k0, std::uint32_t k1, std::uint32_t* words) {
  const D d;
  const V m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    V x = hn::LoadU(d, low + i), y = hn::LoadU(d, high + i), z = hn::Set(d, c2), w = hn::Set(d, c3);
    std::uint32_t a = k0, b = k1;
    for (int round = 0; round < 10; ++round) {
      V high0, low0, high1, low1;
      Multiply(d, x, m0, high0, low0);
      Multiply(d, z, m1, high1, low1);
      x = hn::Xor(hn::Xor(high1, y), hn::Set(d, a));
      z = hn::Xor(hn::Xor(high0, w), hn::Set(d, b));
      y = low1;
      w = low0;
      a += 0x9E3779B9u;
      b += 0xBB67AE85u;
    }
    hn::StoreU(x, d, words + i);
    hn::StoreU(y, d, words + kPhiloxBatch + i);
    hn::StoreU(z, d, words + 2 * kPhiloxBatch + i);
    hn::StoreU(w, d, words + 3 * kPhiloxBatch + i);
  }
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(PhiloxBatch);

void philox_batch(std::size_t count, const std::uint32_t* low, const std::uint32_t* high, std::uint32_t c2,
                  std::uint32_t c3, std::uint32_t k0, std::uint32_t k1, std::uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(PhiloxBatch)(count, low, high, c2, c3, k0, k1, words);
}

}  // namespace meshloom::backends::cpu
#endif
