// Four-bit NormalFloat: its levels, and packing to the nearest of them.
#include "kernels/nf4_matmul/nf4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hal/error.h"
#include "kernels/core/rng.h"

namespace meshloom::tests {
namespace {

namespace nf4 = kernels::nf4;

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// The paper's construction: between 1/2 and the outermost probability lie 8 equal steps above zero and 7
// below.
TEST(Nf4, LevelsAreQuantilesOfANormalDistribution) {
  const double outermost = 0.5 * (31.0 / 32 + 29.0 / 30);
  double low = 0, high = 10;  // its quantile, by which the levels were divided
  for (int i = 0; i < 100; ++i) (normal_cdf((low + high) / 2) < outermost ? low : high) = (low + high) / 2;
  for (int code = 0; code < 16; ++code) {
    const double steps = code < 7 ? (7 - code) / 7.0 : (code - 7) / 8.0;
    const double x = std::abs(static_cast<double>(nf4::kLevels[static_cast<std::size_t>(code)]));
    EXPECT_NEAR(normal_cdf(x * low), 0.5 + steps * (outermost - 0.5), 1e-6) << code;
  }
  EXPECT_TRUE(std::is_sorted(nf4::kLevels.begin(), nf4::kLevels.end()));
  EXPECT_EQ(nf4::kLevels[7], 0.0f);
}

struct Matrix {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, values;
};
Matrix pack(const std::vector<float>& from, std::int64_t rows, std::int64_t columns, std::int64_t block) {
  Matrix m{std::vector<std::uint8_t>(static_cast<std::size_t>(rows * nf4::row_bytes(columns))),
           std::vector<float>(static_cast<std::size_t>(rows * nf4::blocks(columns, block))),
           std::vector<float>(from.size())};
  nf4::block_scales(from.data(), rows, columns, block, m.scales.data());
  nf4::pack(from.data(), m.scales.data(), rows, columns, block, m.codes.data());
  nf4::unpack(m.codes.data(), m.scales.data(), rows, columns, block, m.values.data());
  return m;
}

TEST(Nf4, PacksToTheNearestLevelOfEachBlock) {
  for (const std::int64_t columns : {1, 7, 8, 63, 64, 65, 200})
    for (const std::int64_t block : {8, 64}) {
      const std::int64_t rows = 5;
      kernels::HostTensor random({kernels::DType::f32, {rows, columns}});
      kernels::fill_uniform({random.type, random.data.data()}, 7, -3, 3);
      const std::vector<float> from(random.as<float>(), random.as<float>() + rows * columns);
      const Matrix m = pack(from, rows, columns, block);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto at = static_cast<std::size_t>(r * columns + c);
          const float scale = m.scales[static_cast<std::size_t>(r * nf4::blocks(columns, block) + c / block)];
          float nearest = std::numeric_limits<float>::infinity(), largest = 0;
          for (const float level : nf4::kLevels)
            nearest = std::min(nearest, std::abs(from[at] - level * scale));
          for (std::int64_t i = c / block * block; i < std::min(columns, (c / block + 1) * block); ++i)
            largest = std::max(largest, std::abs(from[static_cast<std::size_t>(r * columns + i)]));
          EXPECT_EQ(scale, largest);
          EXPECT_NEAR(std::abs(from[at] - m.values[at]), nearest, 1e-6);
        }
      // What is packed already stays as it is.
      EXPECT_EQ(pack(m.values, rows, columns, block).codes, m.codes);
      EXPECT_EQ(pack(m.values, rows, columns, block).values, m.values);
    }
}

TEST(Nf4, ScalesArePackedToTheNearestStep) {
  const std::vector<float> scales{0.501f, 0.25f, 1, 0.001f, 0, 0, 0, 0, 255, 3, 2.4f, 2.6f};
  std::vector<std::uint8_t> codes(scales.size());
  std::vector<float> steps(3), back(scales.size());
  nf4::pack_scales(scales.data(), 3, 4, codes.data(), steps.data());
  nf4::unpack_scales(codes.data(), steps.data(), 3, 4, back.data());
  EXPECT_EQ(codes, (std::vector<std::uint8_t>{128, 64, 255, 0, 0, 0, 0, 0, 255, 3, 2, 3}));
  EXPECT_EQ(steps, (std::vector<float>{1.0f / 255, 0, 1}));
  for (std::size_t i = 0; i < scales.size(); ++i) EXPECT_NEAR(back[i], scales[i], 0.5001 * steps[i / 4]);
}

TEST(Nf4, ZerosStayZerosAndNothingInfiniteIsPacked) {
  const Matrix zeros = pack(std::vector<float>(100, 0.0f), 2, 50, 64);
  EXPECT_EQ(zeros.values, std::vector<float>(100, 0.0f));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(100, 1.0f);
    values[73] = bad;
    EXPECT_THROW(pack(values, 2, 50, 64), hal::Error);
  }
}

}  // namespace
}  // namespace meshloom::tests
