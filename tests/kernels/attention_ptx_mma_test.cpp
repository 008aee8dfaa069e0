// Attention forward on NVIDIA's tensor cores, on any OpenCL device (pretender.h).
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/flash_attention/flash_attention.h"
#include "tests/kernels/on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using kernels::Fit;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class AttentionPtxMma : public OnTensorCores {
 protected:
  AttentionPtxMma() : OnTensorCores("flash_attention") {}

  struct Heads {
    std::int64_t b = 1, s = 1, t = 1, h = 1, kv = 1, d = 16, dv = 0;
    bool causal = true;
    DType dtype = DType::bf16;
  };
  static Case case_of(const Heads& heads) {
    const std::int64_t dv = heads.dv > 0 ? heads.dv : heads.d;
    Case test{std::to_string(heads.s) + " of " + std::to_string(heads.t),
              {{heads.dtype, {heads.b, heads.s, heads.h, heads.d}},
               {heads.dtype, {heads.b, heads.t, heads.kv, heads.d}},
               {heads.dtype, {heads.b, heads.t, heads.kv, dv}}},
              {},
              false};
    test.attrs.set("scale", 0.2);
    if (heads.causal) test.attrs.set("causal", true);
    return test;
  }
  // Where the variant takes the case at all.
  void expect_right_or_refused(hal::Device& device, const Case& test, std::uint64_t seed) {
    const CaseCall call(catalog_, op_, test);
    const Fit fit = variant_->fit(call.view(), device.info());
    ++(fit.ok ? taken_ : refused_);
    if (fit.ok) return expect_right(device, test, seed);
    EXPECT_THAT(fit.reason,
                testing::AnyOf(HasSubstr("drops no probabilities"), HasSubstr("eight features at a time"),
                               HasSubstr("do not fit the registers")))
        << test.name;
  }

  int taken_ = 0, refused_ = 0;
};

TEST_F(AttentionPtxMma, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    for (const DType dtype : {DType::bf16, DType::f16})
      if ((!test.slow || slow_cases()) && has_turn(++seed, 11))
        expect_right_or_refused(*device, narrow(test, dtype), seed);
  EXPECT_GT(taken_, refused_);
}

TEST_F(AttentionPtxMma, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(8, 77,
                   [&](const Case& test, std::uint64_t i) { expect_right_or_refused(*device, test, i); });
}

// Rows and keys that end with a tile, one before and one behind it, in every tile.
TEST_F(AttentionPtxMma, EveryTileEqualsTheReference) {
  const auto device = open();
  std::size_t turn = 0;
  for (const Heads& heads :
       {Heads{.s = 129, .t = 129, .h = 2, .d = 64},
        Heads{.s = 1, .t = 65, .h = 2, .kv = 2, .d = 72, .dv = 40},
        Heads{.s = 17, .t = 33, .h = 3, .d = 24, .causal = false, .dtype = DType::f16},
        Heads{.b = 2, .s = 65, .t = 65, .h = 4, .kv = 2, .d = 128, .dtype = DType::f16},
        Heads{.s = 33, .t = 1, .d = 8, .dv = 16, .causal = false}, Heads{.s = 64, .t = 64, .h = 2, .d = 64},
        Heads{.s = 31, .t = 48, .h = 2, .d = 256}}) {
    const CaseCall call(catalog_, op_, case_of(heads));
    const std::vector<Fit> all = variant_->alternatives(call.view(), device->info());
    ASSERT_THAT(all, Not(IsEmpty())) << heads.d;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!has_turn(i, 12, turn)) continue;
      const Outcome outcome = run_variant(*device, *variant_, all[i], call, 3);
      for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
    }
    ++turn;
  }
}

TEST_F(AttentionPtxMma, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5, 6, 7})
    expect_found(wrong, case_of({.s = 20, .t = 40, .d = 16, .dtype = wrong % 2 ? DType::bf16 : DType::f16}));
}

// A driver is trusted when it has computed both dtypes.
TEST_F(AttentionPtxMma, ProofsTellRightFromWrong) {
  Pretender right(registry_.open(id_), 1);
  EXPECT_THAT(self_test(right), IsEmpty());
  EXPECT_EQ(right.info().self_test_results.at("flash_attention ptx_mma"), "");
  std::set<std::string> dtypes;
  for (const hal::ExecutableSpec& spec : right.loaded())
    for (const hal::Define& item : spec.defines)
      if (item.name == "AB_TYPE") dtypes.insert(item.value);
  EXPECT_THAT(dtypes, testing::ElementsAre("1", "2"));

  Pretender wrong(registry_.open(id_), 6);
  const auto found = self_test(wrong);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].found, HasSubstr("times what is allowed"));
}

TEST_F(AttentionPtxMma, OtherDevicesAndCallsAreRefused) {
  hal::DeviceInfo info = open()->info();
  const auto answer = [&](const Case& test) {
    return variant_->fit(CaseCall(catalog_, op_, test).view(), info);
  };
  EXPECT_TRUE(answer(case_of({.s = 64, .t = 64, .d = 64, .dtype = DType::f16})).ok);
  EXPECT_EQ(catalog_.variants(op_, "opencl")[0], variant_);
  EXPECT_THAT(answer(case_of({.dtype = DType::f32})).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(answer(case_of({.d = 20})).reason, HasSubstr("eight features at a time, which heads of 20"));
  for (const Case& test : contract().cases()) {
    if (test.name != "dropout") continue;
    EXPECT_THAT(answer(narrow(test, DType::bf16)).reason, HasSubstr("drops no probabilities"));
  }
  info.limits.max_local_bytes = 4096;
  EXPECT_THAT(answer(case_of({.d = 128})).reason, HasSubstr("and 4096 bytes"));
  info.limits.matrix_shapes.clear();
  EXPECT_THAT(answer(case_of({})).reason, HasSubstr("compute capability 8.0 or more"));
}

// Few workgroups would leave most of the device idle.
TEST_F(AttentionPtxMma, ShortSequencesGetSmallTiles) {
  const hal::DeviceInfo info = open()->info();
  const auto rows = [&](const Heads& heads) {
    const Fit fit = variant_->fit(CaseCall(catalog_, op_, case_of(heads)).view(), info);
    return fit.params.at("warps") * fit.params.at("row_matrices") * 16;
  };
  EXPECT_EQ(rows({.b = 4, .s = 512, .t = 512, .h = 9, .kv = 3, .d = 64}), 64);
  EXPECT_EQ(rows({.b = 4, .s = 2048, .t = 2048, .h = 32, .kv = 8, .d = 64}), 128);
  EXPECT_EQ(rows({.b = 4, .s = 1, .t = 2048, .h = 32, .kv = 8, .d = 64}), 16);
}

}  // namespace
}  // namespace meshloom::tests
