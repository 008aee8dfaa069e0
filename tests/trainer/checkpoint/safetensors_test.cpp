#include "trainer/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "hal/error.h"
#include "kernels/core/rng.h"
#include "tests/trainer/run/binary.h"

namespace meshloom::trainer {
namespace {

std::string whole_file() {
  std::vector<StoredTensor> tensors{{"a/weight", "F32", {2, 3}}, {"b", "I32", {4}}, {"empty", "F32", {0, 5}}};
  std::string text = safetensors_header(tensors, {{"format", "meshloom"}});
  for (int i = 0; i < 10; ++i) {
    const float value = static_cast<float>(i);
    text.append(reinterpret_cast<const char*>(&value), 4);
  }
  return text;
}

std::string error_of(const std::string& header, std::int64_t data_bytes) {
  try {
    parse_safetensors_header(header, data_bytes, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Safetensors, RoundTrip) {
  const tests::Scratch scratch;
  const SafetensorsFile file(scratch.file("x.safetensors", whole_file()));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().at("format"), "meshloom");
  const StoredTensor* weight = file.find("a/weight");
  ASSERT_TRUE(weight);
  EXPECT_EQ(weight->shape, (std::vector<std::int64_t>{2, 3}));
  std::vector<float> values(6);
  file.read(*weight, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ((whole_file().size() - 40) % 8, 0u);  // the data is aligned
}

TEST(Safetensors, RefusesBadHeaders) {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"t\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  EXPECT_EQ(error_of(entry("\"F32\"", "[2]", "[0,8]"), 8), "");
  EXPECT_NE(error_of("{", 0).find("must be JSON"), std::string::npos);
  EXPECT_NE(error_of("[]", 0).find("JSON object"), std::string::npos);
  EXPECT_NE(error_of(entry("\"F99\"", "[2]", "[0,8]"), 8).find("element type"), std::string::npos);
  EXPECT_NE(error_of(entry("7", "[2]", "[0,8]"), 8).find("element type"), std::string::npos);
  EXPECT_NE(error_of(entry("\"F32\"", "[-2]", "[0,8]"), 8).find("sizes"), std::string::npos);
  EXPECT_NE(error_of(entry("\"F32\"", "[2.0]", "[0,8]"), 8).find("sizes"), std::string::npos);
  EXPECT_NE(error_of(entry("\"F32\"", "[3]", "[0,8]"), 8).find("need 12 bytes"), std::string::npos);
  EXPECT_NE(error_of(entry("\"F32\"", "[2]", "[8,0]"), 8).find("inside"), std::string::npos);
  EXPECT_NE(error_of(entry("\"F32\"", "[2]", "[0,8]"), 4).find("inside"), std::string::npos);
  EXPECT_NE(error_of(entry("\"F32\"", "[2]", "[0,8]"), 12).find("cover"), std::string::npos);
  EXPECT_NE(error_of(entry("\"F32\"", "[4294967296,4294967296]", "[0,8]"), 8).find("63 bits"),
            std::string::npos);
  EXPECT_NE(error_of("{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                     "\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                     4)
                .find("stand once"),
            std::string::npos);
  EXPECT_NE(error_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
                     12)
                .find("overlaps"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(100000, '['), 0).find("nest"), std::string::npos);
}

// Thousands of damaged files: each is read or refused, never more than that.
TEST(Safetensors, SurvivesMutations) {
  const tests::Scratch scratch;
  const std::string good = whole_file();
  kernels::Rng rng(7);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bad = good;
    const std::int64_t edits = rng.integer(1, 4);
    for (std::int64_t i = 0; i < edits && !bad.empty(); ++i) {
      const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(bad.size()) - 1));
      switch (rng.integer(0, 4)) {
        case 0:
          bad[at] = static_cast<char>(rng.integer(0, 255));
          break;
        case 1:
          bad[at] = static_cast<char>(bad[at] ^ 1 << rng.integer(0, 7));
          break;
        case 2:
          bad.erase(at, static_cast<std::size_t>(rng.integer(1, 16)));
          break;
        case 3:
          bad.insert(
              at, std::string(static_cast<std::size_t>(rng.integer(1, 8)), "09[]{}\",:-"[rng.integer(0, 9)]));
          break;
        default:
          bad.resize(at);
          break;
      }
    }
    try {
      const SafetensorsFile file(scratch.file("x.safetensors", bad));
      for (const StoredTensor& tensor : file.tensors()) {
        std::vector<std::byte> data(static_cast<std::size_t>(tensor.bytes()));
        ASSERT_LE(data.size(), bad.size());
        file.read(tensor, data);
      }
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace meshloom::trainer
