// The rewriting of cooperative matrices, on what the compiler makes of small kernels; no driver is asked.
#ifdef MESHLOOM_HAS_VULKAN
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "backends/vulkan/device/cooperative_spirv.h"
#include "backends/vulkan/device/shader.h"
#include "hal/error.h"

namespace meshloom {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::uint32_t>;

// How often each opcode occurs, and the operands of its last.
struct Count {
  int times = 0;
  Words last;
};
std::map<std::uint32_t, Count> count(const Words& words) {
  std::map<std::uint32_t, Count> found;
  for (std::size_t at = 5; at < words.size(); at += words[at] >> 16) {
    Count& of = found[words[at] & 0xffff];
    ++of.times;
    of.last.assign(words.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                   words.begin() + static_cast<std::ptrdiff_t>(at + (words[at] >> 16)));
  }
  return found;
}

// sums = A B of one 16 x 16 x 16 product of i8.
Words compiled_integers() {
  return backends::vulkan::compile_glsl(
      "#version 450\n#pragma use_vulkan_memory_model\n"
      "#extension GL_NV_cooperative_matrix : require\n"
      "#extension GL_NV_integer_cooperative_matrix : require\n"
      "#extension GL_KHR_memory_scope_semantics : require\n"
      "#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require\n"
      "layout(local_size_x = 32) in;\n"
      "layout(constant_id = 1) const uint M = 16;\n"
      "layout(constant_id = 2) const uint N = 16;\n"
      "layout(constant_id = 3) const uint K = 16;\n"
      "shared uvec2 a[32], b[32]; shared int c[256];\n"
      "void main() {\n"
      "  icoopmatNV<8, gl_ScopeSubgroup, M, K> x;\n"
      "  icoopmatNV<8, gl_ScopeSubgroup, K, N> y;\n"
      "  icoopmatNV<32, gl_ScopeSubgroup, M, N> z = icoopmatNV<32, gl_ScopeSubgroup, M, N>(0);\n"
      "  coopMatLoadNV(x, a, 0, 2, false);\n"
      "  coopMatLoadNV(y, b, 0, 2, true);\n"
      "  coopMatStoreNV(coopMatMulAddNV(x, y, z), c, 0, 16, false);\n"
      "}\n",
      "test", hal::DiskCache({}));
}

// sums = A B of one 16 x 16 x 16 product; `k` and `n` are the SpecIds of those extents.
Words compiled(const std::string& k, const std::string& n = "2") {
  return backends::vulkan::compile_glsl(
      "#version 450\n#pragma use_vulkan_memory_model\n"
      "#extension GL_NV_cooperative_matrix : require\n"
      "#extension GL_KHR_memory_scope_semantics : require\n"
      "#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require\n"
      "layout(local_size_x = 32) in;\n"
      "layout(constant_id = 1) const uint M = 16;\n"
      "layout(constant_id = " +
          n +
          ") const uint N = 16;\n"
          "layout(constant_id = " +
          k +
          ") const uint K = 16;\n"
          "shared uvec4 a[32], b[32]; shared float c[256];\n"
          "void main() {\n"
          "  a[gl_LocalInvocationIndex] = uvec4(1u);\n"
          "  barrier();\n"
          "  fcoopmatNV<16, gl_ScopeSubgroup, M, K> x;\n"
          "  fcoopmatNV<16, gl_ScopeSubgroup, K, N> y;\n"
          "  fcoopmatNV<32, gl_ScopeSubgroup, M, N> z = fcoopmatNV<32, gl_ScopeSubgroup, M, N>(0.0);\n"
          "  coopMatLoadNV(x, a, 0, 2, false);\n"
          "  coopMatLoadNV(y, b, 0, 2, true);\n"
          "  coopMatStoreNV(coopMatMulAddNV(x, y, z) / z, c, 0, 16, false);\n"
          "}\n",
      "test", hal::DiskCache({}));
}

constexpr std::uint32_t kTypeFloat = 22, kConstant = 43, kControlBarrier = 224, kTypeMatrix = 4456,
                        kLoad = 4457, kStore = 4458, kMulAdd = 4459, kFMul = 133, kFDiv = 136;

TEST(CooperativeSpirv, BecomesKhr) {
  const Words words = compiled("3");
  auto found = count(words);
  EXPECT_EQ(found[kTypeMatrix].times, 3);
  EXPECT_EQ(found[kTypeMatrix].last.size(), 6u);
  EXPECT_EQ(found[kLoad].times, 2);
  EXPECT_EQ(found[kStore].times, 1);
  EXPECT_EQ(found[kMulAdd].times, 1);
  EXPECT_EQ(found[kFMul].times, 1);
  EXPECT_EQ(found.count(kFDiv), 0u);
  EXPECT_EQ(found[kTypeFloat].last.size(), 2u);
  for (std::uint32_t nv = 5358; nv <= 5362; ++nv) EXPECT_EQ(found.count(nv), 0u) << nv;
  const auto bound = words[3];
  for (std::uint32_t id : found[kTypeMatrix].last) EXPECT_LT(id, bound);
}

// The value of a constant, 0 for one that is not there.
std::uint32_t value_of(const Words& words, std::uint32_t id) {
  for (std::size_t at = 5; at < words.size(); at += words[at] >> 16)
    if ((words[at] & 0xffff) == kConstant && words[at + 2] == id) return words[at + 3];
  return 0;
}

TEST(CooperativeSpirv, BarriersMakeAvailableAndVisibleWhatAccessesDoNot) {
  constexpr std::uint32_t kNonPrivate = 0x20, kMakesAvailableAndVisible = 0x6000, kWorkgroupMemory = 0x100;
  const Words words = compiled("3");
  auto found = count(words);
  EXPECT_EQ(found[kLoad].last.back(), kNonPrivate);
  EXPECT_EQ(found[kStore].last.back(), kNonPrivate);
  ASSERT_EQ(found[kControlBarrier].times, 1);
  const std::uint32_t semantics = value_of(words, found[kControlBarrier].last[2]);
  EXPECT_EQ(semantics & kMakesAvailableAndVisible, kMakesAvailableAndVisible);
  EXPECT_EQ(semantics & kWorkgroupMemory, kWorkgroupMemory);
}

TEST(CooperativeSpirv, NothingElseIsTouched) {
  const Words khr = compiled("3");
  EXPECT_EQ(backends::vulkan::to_khr_cooperative_matrix(khr, "test"), khr);
}

TEST(CooperativeSpirv, ElementsBecomeBfloat16WhereTheSpecIdSaysSo) {
  auto found = count(compiled("4"));
  ASSERT_EQ(found[kTypeFloat].last.size(), 3u);
  EXPECT_EQ(found[kTypeFloat].last[1], 16u);
  EXPECT_EQ(found[kTypeFloat].last[2], 0u);  // the encoding BFloat16KHR
}

TEST(CooperativeSpirv, ProductsOfIntegersSayThatAllAreSigned) {
  auto integers = count(compiled_integers()), floats = count(compiled("3"));
  ASSERT_EQ(integers[kMulAdd].last.size(), floats[kMulAdd].last.size() + 1);
  EXPECT_EQ(integers[kMulAdd].last.back(), 15u);  // A, B, C and the result
}

TEST(CooperativeSpirv, OtherExtentsAreRefused) {
  try {
    compiled("3", "7");
    ADD_FAILURE() << "took it";
  } catch (const hal::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("M x K, K x N or M x N"));
  }
}

}  // namespace
}  // namespace meshloom
#endif
