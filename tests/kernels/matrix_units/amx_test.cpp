// The processor's matrix unit, alone: against sums in double precision and in integers, at every kind of
// edge.
#include "backends/cpu/gemm/amx.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <type_traits>
#include <vector>

#include "hal/math.h"

namespace meshloom::backends::cpu {
namespace {

struct Size {
  std::int64_t m, n, k;  // k in words
};
constexpr Size kSizes[] = {{1, 1, 1},    {16, 16, 16}, {32, 32, 16}, {33, 33, 17},  {17, 31, 15},
                           {31, 65, 33}, {48, 64, 32}, {64, 40, 7},  {100, 97, 50}, {5, 130, 129}};

// Words of `product`'s numbers, the sum of one word's products of a and b, and what a sum is made of.
struct Bf16 {
  static constexpr AmxProduct kProduct = AmxProduct::bf16_pairs;
  using Sum = float;
  static float at(std::uint32_t word, int i) { return std::bit_cast<float>(word >> (16 * i) << 16); }
  static std::uint32_t draw(std::mt19937& random) {
    std::normal_distribution<float> normal;
    const auto upper = [&] { return std::bit_cast<std::uint32_t>(normal(random)) >> 16; };
    return upper() | upper() << 16;
  }
  static double dot(std::uint32_t a, std::uint32_t b) {
    return double{at(a, 0)} * at(b, 0) + double{at(a, 1)} * at(b, 1);
  }
};
struct Bytes {
  static constexpr AmxProduct kProduct = AmxProduct::u8s8;
  using Sum = std::int32_t;
  static std::uint32_t draw(std::mt19937& random) { return static_cast<std::uint32_t>(random()); }
  static double dot(std::uint32_t a, std::uint32_t b) {
    double sum = 0;
    for (int i = 0; i < 4; ++i)
      sum += static_cast<double>(a >> (8 * i) & 255u) * static_cast<std::int8_t>(b >> (8 * i) & 255u);
    return sum;
  }
};

template <typename T>
class MatrixTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_amx(T::kProduct)) GTEST_SKIP() << "the processor has no matrix unit for it";
  }

  // Rows of A and of C lie further apart than they are long, and nothing else of C may change.
  void check(const Size& size, bool accumulate, std::int64_t b_row) {
    const auto [m, n, k] = size;
    const std::int64_t a_row = k + 3, c_row = n + 5, panels = hal::ceil_div(n, kAmxPanelColumns);
    const std::int64_t b_panel = b_row == kAmxPanelColumns ? k * b_row : kAmxPanelColumns;
    std::mt19937 random(static_cast<unsigned>(1000 * m + 10 * n + k));
    const auto words = [&](std::int64_t count) {
      std::vector<std::uint32_t> result(static_cast<std::size_t>(count));
      for (std::uint32_t& word : result) word = T::draw(random);
      return result;
    };
    const auto a = words(m * a_row), b = words(panels * k * std::max(b_row, kAmxPanelColumns));
    std::vector<typename T::Sum> c(static_cast<std::size_t>(m * c_row)), before;
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<typename T::Sum>(i % 7);
    before = c;
    amx_gemm(T::kProduct, m, n, k, {a.data(), a_row, b.data(), b_row, b_panel, c.data(), c_row}, accumulate);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < c_row; ++j) {
        const auto at = static_cast<std::size_t>(i * c_row + j);
        double want = j < n && !accumulate ? 0 : before[at], size_of_terms = 0;
        for (std::int64_t step = 0; j < n && step < k; ++step) {
          const auto place = j / kAmxPanelColumns * b_panel + step * b_row + j % kAmxPanelColumns;
          const double term =
              T::dot(a[static_cast<std::size_t>(i * a_row + step)], b[static_cast<std::size_t>(place)]);
          want += term, size_of_terms += std::abs(term);
        }
        const double allowed = std::is_same_v<T, Bf16> ? 1e-6 * (size_of_terms + 1) : 0;
        ASSERT_NEAR(c[at], want, allowed)
            << m << "x" << n << "x" << k << " at " << i << ", " << j << (accumulate ? " accumulated" : "");
      }
  }
};
using Products = testing::Types<Bf16, Bytes>;
TYPED_TEST_SUITE(MatrixTiles, Products);

TYPED_TEST(MatrixTiles, EverySizeAndEdge) {
  for (const Size& size : kSizes)
    for (const bool accumulate : {false, true}) this->check(size, accumulate, kAmxPanelColumns);
}

// As panels beside each other in the rows of a matrix.
TYPED_TEST(MatrixTiles, RowsOfBFurtherApart) {
  for (const Size& size : kSizes) {
    const std::int64_t columns = hal::round_up(size.n, kAmxPanelColumns);
    this->check(size, false, columns + kAmxPanelColumns);
  }
}

TYPED_TEST(MatrixTiles, OneScopeForProductsOfManyHeights) {
  const AmxScope scope;
  for (const Size& size : kSizes) this->check(size, true, kAmxPanelColumns);
  std::optional<AmxScope> inner;
  inner.emplace();
  this->check({40, 40, 40}, false, kAmxPanelColumns);
  inner.reset();
  this->check({7, 40, 40}, false, kAmxPanelColumns);
}

}  // namespace
}  // namespace meshloom::backends::cpu
