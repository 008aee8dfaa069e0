// Attention forward by warpgroups on NVIDIA's tensor cores, on any OpenCL device (pretender.h).
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
using testing::SizeIs;

// The call with heads of so many features.
Case with_heads(Case test, std::int64_t features) {
  for (std::size_t i = 0; i < 3; ++i) test.inputs[i].shape.back() = features;
  test.name += ", heads of " + std::to_string(features);
  return test;
}

class AttentionPtxWgmma : public OnTensorCores {
 protected:
  AttentionPtxWgmma() : OnTensorCores("flash_attention", "ptx_wgmma") {}

  struct Heads {
    std::int64_t b = 1, s = 1, t = 1, h = 1, kv = 1, d = 64;
    bool causal = true;
    DType dtype = DType::bf16;
  };
  static Case case_of(const Heads& heads) {
    Case test{std::to_string(heads.s) + " of " + std::to_string(heads.t) + ", " + std::to_string(heads.d),
              {{heads.dtype, {heads.b, heads.s, heads.h, heads.d}},
               {heads.dtype, {heads.b, heads.t, heads.kv, heads.d}},
               {heads.dtype, {heads.b, heads.t, heads.kv, heads.d}}},
              {},
              false};
    test.attrs.set("scale", 0.2);
    if (heads.causal) test.attrs.set("causal", true);
    return test;
  }
  // All but dropout.
  void expect_right_or_dropout(hal::Device& device, const Case& test, std::uint64_t seed) {
    expect_right_or_refused(device, test, seed, "drops no probabilities");
  }
};

// Every option of the contract's cases.
TEST_F(AttentionPtxWgmma, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    if (!test.slow && has_turn(++seed, 14))  // by hand the cases of models take minutes
      expect_right_or_dropout(
          *device, with_heads(narrow(test, seed % 2 ? DType::bf16 : DType::f16), seed % 4 < 3 ? 64 : 128),
          seed);
  EXPECT_GT(ran_, 0);
}

TEST_F(AttentionPtxWgmma, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(3, 177, [&](const Case& test, std::uint64_t i) {
    expect_right_or_dropout(*device, with_heads(test, i % 3 ? 64 : 128), i);
  });
}

// Rows and keys that end with a tile, one before and one behind it, and more tiles than there is room for, in every tile.
TEST_F(AttentionPtxWgmma, EveryTileEqualsTheReference) {
  const auto device = open();
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  std::size_t turn = 0;
  for (const Heads& heads :
       {Heads{.s = 193, .t = 193, .h = 2}, Heads{.s = 1, .t = 65, .h = 2, .kv = 2},
        Heads{.s = 65, .t = 450, .causal = false, .dtype = DType::f16},
        Heads{.s = 129, .t = 400, .h = 2, .d = 128},
        Heads{.b = 2, .s = 64, .t = 64, .h = 4, .kv = 2, .dtype = DType::f16},
        Heads{.s = 33, .t = 1, .causal = false}, Heads{.s = 63, .t = 127, .d = 128, .dtype = DType::f16}}) {
    const CaseCall call(catalog_, op_, case_of(heads));
    const std::vector<Fit> all = variant_->alternatives(call.view(), device->info());
    ASSERT_THAT(all, SizeIs(heads.d == 64 ? 4 : 2)) << heads.d;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!has_turn(i, all.size(), turn)) continue;
      seen.insert({all[i].params.at("warps"), all[i].params.at("streamed")});
      const Outcome outcome = run_variant(*device, *variant_, all[i], call, 3);
      EXPECT_TRUE(outcome.ran);
      for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
    }
    ++turn;
  }
  EXPECT_GE(seen.size(), 3u);
}

TEST_F(AttentionPtxWgmma, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5, 6, 7, 8, 9})
    expect_found(
        wrong,
        case_of(
            {.s = 20, .t = 70, .d = wrong == 9 ? 128 : 64, .dtype = wrong % 2 ? DType::bf16 : DType::f16}));
}

TEST_F(AttentionPtxWgmma, ProofsTellRightFromWrong) {
  Pretender right(registry_.open(id_), 1);
  EXPECT_THAT(self_test(right), IsEmpty());
  EXPECT_EQ(right.info().self_test_results.at("flash_attention ptx_wgmma"), "");
  std::set<std::string> seen;
  for (const hal::ExecutableSpec& spec : right.loaded()) {
    std::string values;
    for (const hal::Define& item : spec.defines)
      if (item.name == "AB_TYPE" || item.name == "D") values += item.value + " ";
    seen.insert(values);
  }
  EXPECT_THAT(seen, testing::IsSupersetOf({"1 64 ", "2 64 "}));

  Pretender wrong(registry_.open(id_), 3);
  const auto found = self_test(wrong);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].found, HasSubstr("times what is allowed"));
}

TEST_F(AttentionPtxWgmma, OtherDevicesAndCallsAreRefused) {
  hal::DeviceInfo info = open()->info();
  const auto answer = [&](const Case& test) {
    return variant_->fit(CaseCall(catalog_, op_, test).view(), info);
  };
  EXPECT_TRUE(answer(case_of({.s = 64, .t = 64, .dtype = DType::f16})).ok);
  EXPECT_THAT(answer(case_of({.dtype = DType::f32})).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(answer(case_of({.d = 96})).reason, HasSubstr("heads of 64 or of 128 features"));
  Case values = case_of({.d = 64});
  values.inputs[2].shape.back() = 128;
  EXPECT_THAT(answer(values).reason, HasSubstr("these have 64 and 128"));
  for (const Case& test : contract().cases()) {
    if (test.name != "dropout") continue;
    EXPECT_THAT(answer(with_heads(narrow(test, DType::bf16), 64)).reason,
                HasSubstr("drops no probabilities"));
  }
  info.name = "GeForce RTX 4090";
  info.features.push_back("compute-capability=8.9");
  EXPECT_THAT(
      answer(case_of({})).reason,
      HasSubstr("of compute capability 9.0; this one is GeForce RTX 4090 with compute-capability=8.9"));
}

// No card has run it: ptx_mma, which takes whatever it takes, is asked before it.
TEST_F(AttentionPtxWgmma, OnlyARuleChoosesIt) {
  const auto variants = catalog_.variants(op_, "opencl");
  ASSERT_GE(variants.size(), 2u);
  EXPECT_EQ(variants[1], variant_);
  const hal::DeviceInfo info = open()->info();
  for (const std::int64_t d : {64, 128}) {
    const CaseCall call(catalog_, op_, case_of({.s = 300, .t = 300, .d = d}));
    EXPECT_TRUE(variant_->fit(call.view(), info).ok);
    EXPECT_TRUE(variants[0]->fit(call.view(), info).ok);
  }
}

}  // namespace
}  // namespace meshloom::tests
