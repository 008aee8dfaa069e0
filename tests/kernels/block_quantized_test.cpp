// Weights in blocks: what is made from f32 is near it, codes and values agree, and bytes of a file are read as they stand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "hal/low_precision.h"
#include "kernels/block_quantized/formats.h"
#include "kernels/core/rng.h"

namespace meshloom::tests {
namespace {

namespace formats = kernels::block_quantized;

std::vector<float> random(std::int64_t count, std::uint64_t seed) {
  kernels::HostTensor tensor({kernels::DType::f32, {count}});
  kernels::fill_uniform({tensor.type, tensor.data.data()}, seed, -2, 3);
  return {tensor.as<float>(), tensor.as<float>() + count};
}

std::vector<std::uint8_t> quantized(const formats::Format& format, const std::vector<float>& from,
                                    bool fits = true) {
  const auto count = static_cast<std::int64_t>(from.size());
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(formats::row_bytes(format, count)));
  EXPECT_EQ(formats::quantize(format, from.data(), count, bytes.data()), fits) << format.name;
  return bytes;
}
std::vector<float> dequantized(const formats::Format& format, const std::vector<std::uint8_t>& bytes) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(format.bytes) *
                            static_cast<std::size_t>(format.elements));
  formats::dequantize(format, bytes.data(), static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

TEST(BlockFormats, HaveTheSizesOfGgml) {
  const auto bits = [](const char* name) {
    const formats::Format* format = formats::find_format(name);
    return 8.0 * static_cast<double>(format->bytes) / static_cast<double>(format->elements);
  };
  EXPECT_EQ(bits("q8_0"), 8.5);
  EXPECT_EQ(bits("q4_0"), 4.5);
  EXPECT_EQ(bits("q4_1"), 5);
  EXPECT_EQ(bits("q5_0"), 5.5);
  EXPECT_EQ(bits("q5_1"), 6);
  EXPECT_EQ(bits("q4_k"), 4.5);
  EXPECT_EQ(bits("q5_k"), 5.5);
  EXPECT_EQ(bits("q6_k"), 6.5625);
  EXPECT_EQ(formats::formats().size(), 8u);
  EXPECT_EQ(formats::find_format("Q8_0"), nullptr);
}

TEST(BlockFormats, RoundToTheNearestCode) {
  for (const formats::Format& format : formats::formats()) {
    if (!format.is_written) continue;
    const std::vector<float> from = random(96, 5), back = dequantized(format, quantized(format, from));
    for (std::size_t block = 0; block < from.size(); block += 32) {
      const auto [low, high] = std::minmax_element(from.begin() + static_cast<std::ptrdiff_t>(block),
                                                   from.begin() + static_cast<std::ptrdiff_t>(block) + 32);
      const float largest = std::max(std::abs(*low), std::abs(*high));
      const float step = format.name == "q8_0" ? largest / 127
                         : format.has_minimum  ? (*high - *low) / (format.name == "q5_1" ? 31 : 15)
                                               : largest / static_cast<float>(format.offset);
      // The end of the range that has the smaller magnitude has one code less.
      const float allowed = format.has_minimum || format.name == "q8_0" ? 0.52f * step : 1.02f * step;
      for (std::size_t i = block; i < block + 32; ++i)
        EXPECT_NEAR(back[i], from[i], allowed + 2e-3f * largest) << format.name;
    }
  }
}

TEST(BlockFormats, ValuesAreThoseOfTheirCodes) {
  for (const formats::Format& format : formats::formats()) {
    std::vector<std::uint8_t> block(static_cast<std::size_t>(format.bytes));
    for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::uint8_t>(37 * i + 11);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(format.elements));
    std::vector<float> scales(16), minimums(16);
    formats::unpack(format, block.data(), codes.data(), scales.data(), minimums.data());
    const std::vector<float> values = dequantized(format, block);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t group = i / static_cast<std::size_t>(format.group);
      const double exact = static_cast<double>(scales[group]) * (codes[i] - format.offset) + minimums[group];
      EXPECT_EQ(values[i], static_cast<float>(exact)) << format.name << " " << i;
    }
  }
}

// A block of q4_0 by hand: scale 0.5, element i has code i % 16.
TEST(BlockFormats, HalvesOfABlockAreInTheHalvesOfItsBytes) {
  std::vector<std::uint8_t> block{0, 0x38};
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<std::uint8_t>(i | (15 - i) << 4));
  const std::vector<float> values = dequantized(*formats::find_format("q4_0"), block);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.5f * static_cast<float>(i - 8));
    EXPECT_EQ(values[static_cast<std::size_t>(i) + 16], 0.5f * static_cast<float>(7 - i));
  }
}

TEST(BlockFormats, WhatCannotBeRoundedIsSaid) {
  for (const formats::Format& format : formats::formats()) {
    if (!format.is_written) continue;
    std::vector<float> from = random(64, 3);
    EXPECT_EQ(dequantized(format, quantized(format, std::vector<float>(32, 0.0f))),
              std::vector<float>(32, 0.0f));
    std::vector<float> tiny(32, 0.0f);  // whose scale has no inverse
    tiny[3] = 1e-39f;
    EXPECT_EQ(dequantized(format, quantized(format, tiny)), std::vector<float>(32, 0.0f));
    from[40] = 1e30f;
    quantized(format, from, false);
    from[40] = std::numeric_limits<float>::quiet_NaN();
    quantized(format, from, false);
  }
  std::uint8_t bytes[256];
  EXPECT_ANY_THROW(formats::quantize(*formats::find_format("q4_k"), random(256, 1).data(), 256, bytes));
}

}  // namespace
}  // namespace meshloom::tests
