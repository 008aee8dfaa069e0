// Matmul by warpgroups on NVIDIA's tensor cores, on any OpenCL device (pretender.h), and the PTX that they need.
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/matrix_units/on_tensor_cores.h"
#ifdef MESHLOOM_HAS_OPENCL
#include "backends/opencl/device/ptx.h"
#endif

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using kernels::Fit;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class PtxWgmma : public OnTensorCores {
 protected:
  PtxWgmma() : OnTensorCores("matmul", "ptx_wgmma") {}

  // Calls whose rows are not multiples of eight elements are refused.
  void expect_right_or_refused(hal::Device& device, const Case& test, std::uint64_t seed) {
    OnTensorCores::expect_right_or_refused(device, test, seed, HasSubstr("multiples of 8"));
  }
};

TEST_F(PtxWgmma, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    if (!test.slow && has_turn(++seed, 3))
      expect_right_or_refused(*device, narrow(test, seed % 2 ? DType::bf16 : DType::f16), seed);
  EXPECT_GT(ran_, 0);
}

TEST_F(PtxWgmma, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(8, 99,
                   [&](const Case& test, std::uint64_t i) { expect_right_or_refused(*device, test, i); });
}

// Tiles that the matrix ends in, steps of K that it ends in, parts of K, either dtype of C, and rows of C that are no multiple of
// eight elements.
TEST_F(PtxWgmma, EveryTileAndTransposeEqualsTheReference) {
  const auto device = open();
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
  std::size_t turn = 0;
  for (const int transposes : {0, 1, 2, 3}) {
    const bool narrow_c = transposes == 2;
    const Case test = product(264, narrow_c ? 197 : 200, turn % 2 ? 200 : 192, transposes,
                              turn % 2 ? DType::bf16 : DType::f16, turn % 2 ? "bf16" : "f32");
    const CaseCall call(catalog_, "matmul", test);
    const std::vector<Fit> all = variant_->alternatives(call.view(), device->info());
    ASSERT_THAT(all, Not(IsEmpty()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!has_turn(i, 4, turn)) continue;
      const auto& p = all[i].params;
      seen.insert({p.at("consumers"), p.at("blocks"), p.at("bn")});
      expect_right(*device, all[i], call);
    }
    ++turn;
  }
  EXPECT_GE(seen.size(), 2u);
}

TEST_F(PtxWgmma, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5})
    for (const int transposes : {0, 1, 2, 3})
      if (has_turn(transposes, 4, wrong)) expect_found(wrong, product(40, 48, 72, transposes, DType::bf16));
}

TEST_F(PtxWgmma, ProofsTellRightFromWrong) { expect_self_test_tells(3); }

TEST_F(PtxWgmma, OtherDevicesAndOperandsAreRefused) {
  const hal::DeviceInfo info = open()->info();
  const auto answer = [&](const Case& test) { return fit(test, info); };
  EXPECT_TRUE(answer(product(256, 512, 128, 0, DType::f16)).ok);
  EXPECT_TRUE(answer(product(256, 509, 128, 2, DType::f16)).ok) << "rows of C may have any length";
  EXPECT_THAT(answer(product(256, 509, 128, 0, DType::f16)).reason, HasSubstr("multiples of 8"));
  EXPECT_THAT(answer(product(256, 512, 100, 0, DType::f16)).reason, HasSubstr("multiples of 8"));
  EXPECT_THAT(answer(product(256, 512, 128, 0, DType::f32)).reason, HasSubstr("f16 and bf16 only"));
  expect_refused_by_other_gpus(product(256, 512, 128, 0, DType::bf16));
}

#ifdef MESHLOOM_HAS_OPENCL
TEST(Ptx, CommentsForSm90aBecomeInstructions) {
  using backends::opencl::ptx_for_sm_90a;
  EXPECT_EQ(ptx_for_sm_90a(".version 9.0\n.target sm_90, texmode_independent\nret;\n"), std::nullopt);
  EXPECT_EQ(ptx_for_sm_90a("// .target sm_1\n.version 9.0\n.target sm_90, texmode_independent\n"
                           "\t//sm_90a wgmma.fence.sync.aligned;\n// .version 1.0\nret;"),
            "// .target sm_1\n.version 9.0\n.target sm_90a, texmode_independent\n"
            "\twgmma.fence.sync.aligned;\n// .version 1.0\nret;");
  EXPECT_EQ(ptx_for_sm_90a(".version 7.5\n.target sm_86\n//sm_90a x;"), ".version 8.0\n.target sm_90a\nx;");
  EXPECT_EQ(ptx_for_sm_90a("//sm_90a "), "");
}

TEST(Ptx, SaysHowManyWorkgroupsShareAMultiprocessor) {
  using backends::opencl::ptx_with_min_workgroups;
  EXPECT_EQ(ptx_with_min_workgroups(".entry a(\n)\n.reqntid 256, 1, 1\n{\nret;\n}", 2),
            ".entry a(\n)\n.reqntid 256, 1, 1\n.minnctapersm 2\n{\nret;\n}");
  EXPECT_EQ(ptx_with_min_workgroups(".maxntid 64\n.reqntid 32", 4),
            ".maxntid 64\n.minnctapersm 4\n.reqntid 32\n.minnctapersm 4\n");
  EXPECT_EQ(ptx_with_min_workgroups("// .reqntid 256\nret;\n", 2), std::nullopt);
  EXPECT_EQ(ptx_with_min_workgroups("", 2), std::nullopt);
  hal::ExecutableSpec spec;
  EXPECT_EQ(backends::opencl::min_workgroups(spec), 0);
  spec.defines = {{"BM", "1"}, {"MIN_WORKGROUPS", "3"}};
  EXPECT_EQ(backends::opencl::min_workgroups(spec), 3);
}
#endif

}  // namespace
}  // namespace meshloom::tests
