// What is read of other projects' shaders, of what the compiler makes of small ones; no driver is asked.
#ifdef MESHLOOM_HAS_VULKAN
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "backends/vulkan/device/shader.h"
#include "backends/vulkan/inspect/spirv_interface.h"
#include "hal/error.h"

namespace meshloom {
namespace {

using backends::vulkan::BufferKind;
using backends::vulkan::read_spirv_interface;
using backends::vulkan::SpirvInterface;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::uint32_t>;

Words compiled(const std::string& layout) {
  return backends::vulkan::compile_glsl("#version 450\n" + layout +
                                            "layout(set = 1, binding = 3) buffer B { float b[]; };\n"
                                            "layout(binding = 0) uniform A { float a; };\n"
                                            "void main() { b[gl_GlobalInvocationID.x] = a; }\n",
                                        "a test", hal::DiskCache(""));
}

std::string error_of(const Words& words) {
  try {
    (void)read_spirv_interface(words, {}, "shader 'x'");
  } catch (const hal::Error& error) {
    return error.what();
  }
  return "";
}

TEST(SpirvInterface, SaysItsBuffersAndItsWorkgroup) {
  const SpirvInterface module =
      read_spirv_interface(compiled("layout(local_size_x = 64, local_size_y = 2) in;\n"), {}, "x");
  EXPECT_EQ(module.entry, "main");
  EXPECT_THAT(module.workgroup, ElementsAre(64, 2, 1));
  ASSERT_EQ(module.sets.size(), 2u);
  EXPECT_EQ(module.sets.at(0).at(0), BufferKind::uniform);
  EXPECT_EQ(module.sets.at(1).at(3), BufferKind::storage);
}

TEST(SpirvInterface, ConstantsOfTheSpecializationSizeTheWorkgroup) {
  const Words words =
      compiled("layout(local_size_x_id = 7) in;\nlayout(constant_id = 9) const uint n = 1;\n");
  EXPECT_THAT(read_spirv_interface(words, {{7, 96}, {9, 5}}, "x").workgroup, ElementsAre(96, 1, 1));
  EXPECT_THAT(read_spirv_interface(words, {}, "x").workgroup, ElementsAre(1, 1, 1));
  EXPECT_THROW((void)read_spirv_interface(words, {{7, 0}}, "x"), hal::Error);
}

TEST(SpirvInterface, SaysWhetherItNeedsMatrices) {
  Words words = compiled("layout(local_size_x = 64) in;\n");
  EXPECT_FALSE(read_spirv_interface(words, {}, "x").uses_cooperative_matrices);
  const std::uint32_t capability[] = {2u << 16 | 17, 6022};
  words.insert(words.begin() + 5, std::begin(capability), std::end(capability));
  EXPECT_TRUE(read_spirv_interface(words, {}, "x").uses_cooperative_matrices);
}

TEST(SpirvInterface, WhatIsNoneIsRefused) {
  EXPECT_THAT(error_of({}), HasSubstr("shader 'x': must be SPIR-V"));
  EXPECT_THAT(error_of({1, 2, 3, 4, 5, 6}), HasSubstr("must be SPIR-V"));
  Words words = compiled("layout(local_size_x = 64) in;\n");
  Words old = words;
  old[1] = 0x00010000;
  EXPECT_THAT(error_of(old), HasSubstr("must be SPIR-V 1.3 or newer; found 1.0"));
  words.resize(5);
  EXPECT_THAT(error_of(words), HasSubstr("must have a compute shader"));
}

// Whatever a file holds, it is read or refused, within its bounds.
TEST(SpirvInterface, AnyWordsAreReadOrRefused) {
  const Words whole = compiled("layout(local_size_x_id = 7) in;\n");
  for (std::size_t size = 0; size <= whole.size(); ++size)
    (void)error_of(Words(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    Words words = whole;
    for (unsigned edits = random() % 4 + 1; edits > 0; --edits) {
      std::uint32_t& word = words[2 + random() % (words.size() - 2)];
      word = random() % 2 == 0 ? static_cast<std::uint32_t>(random()) : word ^ (1u << random() % 32);
    }
    (void)error_of(words);
  }
}

}  // namespace
}  // namespace meshloom
#endif
