// Attention backward by warpgroups on NVIDIA's tensor cores, on any OpenCL device (pretender.h).
#include <string>
#include <vector>

#include "tests/kernels/on_tensor_cores.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::Case;
using kernels::Fit;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kOp = "flash_attention_grad";
constexpr std::int64_t kFeatures = 64;

// The call with the heads that the variant takes.
Case with_heads(Case test) {
  for (const std::size_t i : {0, 1, 2, 3, 5}) test.inputs[i].shape.back() = kFeatures;
  return test;
}

struct Call {
  std::int64_t b = 1, s = 1, t = 1, h = 1, kv = 1, d = kFeatures, dv = kFeatures;
  bool causal = true;
};
Case case_of(const Call& call, DType dtype) {
  const kernels::TensorType o{dtype, {call.b, call.s, call.h, call.dv}};
  Case test{std::to_string(call.s) + " of " + std::to_string(call.t),
            {{dtype, {call.b, call.s, call.h, call.d}},
             {dtype, {call.b, call.t, call.kv, call.d}},
             {dtype, {call.b, call.t, call.kv, call.dv}},
             o,
             {DType::f32, {call.b, call.h, call.s}},
             o},
            {{"scale", 0.2}},
            false};
  if (call.causal) test.attrs.set("causal", true);
  return test;
}

class AttentionPtxWgmmaGrad : public OnTensorCores {
 protected:
  AttentionPtxWgmmaGrad() : OnTensorCores(kOp, "ptx_wgmma") {}

  // All but dropout.
  void expect_right_or_dropout(hal::Device& device, const Case& test, std::uint64_t seed) {
    expect_right_or_refused(device, test, seed, "drops no probabilities");
  }
};

// Every option of the contract's cases.
TEST_F(AttentionPtxWgmmaGrad, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases())
    if (!test.slow && has_turn(++seed, 20))
      expect_right_or_dropout(*device, with_heads(narrow(test, seed % 2 ? DType::bf16 : DType::f16)), seed);
  EXPECT_GT(ran_, 0);
}

TEST_F(AttentionPtxWgmmaGrad, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(2, 177, [&](const Case& test, std::uint64_t i) {
    expect_right_or_dropout(*device, with_heads(test), i);
  });
}

// Lengths that end tiles and warpgroups early, groups of heads, more tiles than there is room for, in every tile.
TEST_F(AttentionPtxWgmmaGrad, EveryTileEqualsTheReference) {
  const auto device = open();
  std::size_t turn = 0;
  for (const Call& call : {Call{.s = 1, .t = 1}, Call{.s = 67, .t = 129, .h = 2},
                           Call{.b = 2, .s = 65, .t = 390}, Call{.s = 390, .t = 63, .causal = false}})
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const CaseCall view(catalog_, kOp, case_of(call, dtype));
      const std::vector<Fit> all = variant_->alternatives(view.view(), device->info());
      ASSERT_THAT(all, SizeIs(4));
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!has_turn(i, all.size(), turn / 2 + turn % 2)) continue;
        const Outcome outcome = run_variant(*device, *variant_, all[i], view, 3);
        EXPECT_TRUE(outcome.ran) << outcome.refusal;
        for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
      }
      ++turn;
    }
}

TEST_F(AttentionPtxWgmmaGrad, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5, 7, 8, 9})
    expect_found(wrong, case_of({.s = 33, .t = 70}, wrong % 2 ? DType::bf16 : DType::f16));
}

TEST_F(AttentionPtxWgmmaGrad, ProofsTellRightFromWrong) {
  Pretender right(registry_.open(id_), 1);
  EXPECT_THAT(self_test(right), IsEmpty());
  EXPECT_EQ(right.info().self_test_results.at("flash_attention_grad ptx_wgmma"), "");
  Pretender wrong(registry_.open(id_), 9);
  const auto found = self_test(wrong);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].found, HasSubstr("times what is allowed"));
}

TEST_F(AttentionPtxWgmmaGrad, OtherDevicesAndCallsAreRefused) {
  hal::DeviceInfo info = open()->info();
  const auto answer = [&](const Call& call, DType dtype) {
    return variant_->fit(CaseCall(catalog_, kOp, case_of(call, dtype)).view(), info);
  };
  EXPECT_TRUE(answer({.s = 64, .t = 64}, DType::f16).ok);
  EXPECT_THAT(answer({}, DType::f32).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(answer({.d = 128, .dv = 128}, DType::bf16).reason, HasSubstr("these have 128 and 128"));
  info.name = "GeForce RTX 4090";
  info.features.push_back("compute-capability=8.9");
  EXPECT_THAT(
      answer({}, DType::bf16).reason,
      HasSubstr("of compute capability 9.0; this one is GeForce RTX 4090 with compute-capability=8.9"));
}

// No card has run it: ptx_mma, which takes whatever it takes, is asked before it.
TEST_F(AttentionPtxWgmmaGrad, OnlyARuleChoosesIt) {
  const auto variants = catalog_.variants(kOp, "opencl");
  ASSERT_GE(variants.size(), 2u);
  EXPECT_EQ(variants[1], variant_);
  const CaseCall call(catalog_, kOp, case_of({.s = 300, .t = 300}, DType::bf16));
  EXPECT_TRUE(variants[0]->fit(call.view(), open()->info()).ok);
}

}  // namespace
}  // namespace meshloom::tests
