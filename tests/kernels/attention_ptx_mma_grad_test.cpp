// Attention backward on NVIDIA's tensor cores, on any OpenCL device: its instructions are put together by hand (mma.inc),
// everything else runs as there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
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
using testing::Not;

constexpr const char* kOp = "flash_attention_grad";

// Sizes of a call, and what it has beyond a causal mask.
struct Call {
  std::int64_t b = 1, s = 1, t = 1, h = 1, kv = 1, d = 16, dv = 16;
  bool causal = true;
  double soft_cap = 0;
  std::int64_t left = -1;  // none
};

Case case_of(const Call& call, DType dtype) {
  const kernels::TensorType o{dtype, {call.b, call.s, call.h, call.dv}};
  Case test{"call",
            {{dtype, {call.b, call.s, call.h, call.d}},
             {dtype, {call.b, call.t, call.kv, call.d}},
             {dtype, {call.b, call.t, call.kv, call.dv}},
             o,
             {DType::f32, {call.b, call.h, call.s}},
             o},
            {{"scale", 0.3}},
            false};
  if (call.causal) test.attrs.set("causal", true);
  if (call.left >= 0) test.attrs.set("left", call.left);
  if (call.soft_cap > 0) test.attrs.set("soft_cap", call.soft_cap);
  return test;
}

class AttentionPtxMmaGrad : public OnTensorCores {
 protected:
  AttentionPtxMmaGrad() : OnTensorCores(kOp) {}

  Fit fit(const hal::Device& device, const Case& test) const {
    return variant_->fit(CaseCall(catalog_, kOp, test).view(), device.info());
  }
  // Holds the call to the reference, unless it is one of those that the variant refuses.
  void expect_right_or_refused(hal::Device& device, const Case& test, std::uint64_t seed) const {
    const Fit answer = fit(device, test);
    EXPECT_EQ(answer.ok, !is_refused(test)) << test.name << ": " << answer.reason;
    if (answer.ok) expect_right(device, test, seed);
  }
  static bool is_refused(const Case& test) {
    const std::int64_t d = test.inputs[0].dim(3), dv = test.inputs[2].dim(3);
    return d % 8 != 0 || dv % 8 != 0 || d + dv > 256 || test.attrs.flag("rng_state");
  }
};

TEST_F(AttentionPtxMmaGrad, EqualsTheReference) {
  const auto device = open();
  std::uint64_t seed = 0;
  for (const Case& test : contract().cases()) {
    ++seed;
    // By hand the cases of models take minutes.
    if (test.slow || !has_turn(seed, 8)) continue;
    expect_right_or_refused(*device, narrow(test, seed / 8 % 2 ? DType::bf16 : DType::f16), seed);
    if (slow_cases())
      expect_right_or_refused(*device, narrow(test, seed / 8 % 2 ? DType::f16 : DType::bf16), seed);
  }
}

TEST_F(AttentionPtxMmaGrad, RandomCallsEqualTheReference) {
  const auto device = open();
  for_random_cases(4, 177,
                   [&](const Case& test, std::uint64_t i) { expect_right_or_refused(*device, test, i); });
}

// Lengths that end tiles and warps early, groups of heads, in every tile.
TEST_F(AttentionPtxMmaGrad, EveryTileEqualsTheReference) {
  const auto device = open();
  std::size_t turn = 0;
  for (const Call& call :
       {Call{.s = 1, .t = 1}, Call{.b = 2, .s = 17, .t = 33, .h = 4, .kv = 2, .d = 24, .dv = 40},
        Call{.s = 65, .t = 65, .h = 3, .d = 24, .dv = 24, .soft_cap = 2},
        Call{.s = 33, .t = 17, .h = 2, .kv = 2, .d = 128, .dv = 128, .causal = false}}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const Case test = case_of(call, dtype);
      const CaseCall view(catalog_, kOp, test);
      const std::vector<Fit> all = variant_->alternatives(view.view(), device->info());
      ASSERT_THAT(all, Not(IsEmpty()));
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!has_turn(i, all.size(), turn)) continue;
        const Outcome outcome = run_variant(*device, *variant_, all[i], view, 3);
        EXPECT_TRUE(outcome.ran) << outcome.refusal;
        for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
      }
      ++turn;
    }
  }
}

TEST_F(AttentionPtxMmaGrad, WrongInstructionsAreFound) {
  for (const int wrong : {2, 3, 4, 5, 7}) {
    expect_found(wrong, case_of({.s = 33, .t = 40, .h = 2, .d = 32, .dv = 16}, DType::bf16));
  }
}

// A driver is trusted when it has computed both dtypes.
TEST_F(AttentionPtxMmaGrad, ProofsTellRightFromWrong) {
  Pretender right(registry_.open(id_), 1);
  EXPECT_THAT(self_test(right), IsEmpty());
  EXPECT_EQ(right.info().self_test_results.at("flash_attention_grad ptx_mma"), "");
  std::set<std::string> seen;
  for (const hal::ExecutableSpec& spec : right.loaded())
    for (const hal::Define& item : spec.defines)
      if (item.name == "AB_TYPE") seen.insert(item.value);
  EXPECT_THAT(seen, testing::ElementsAre("1", "2"));

  Pretender wrong(registry_.open(id_), 7);
  const auto found = self_test(wrong);
  ASSERT_THAT(found, testing::SizeIs(1));
  EXPECT_THAT(found[0].found, HasSubstr("times what is allowed"));
}

TEST_F(AttentionPtxMmaGrad, OtherDevicesAndDtypesAreRefused) {
  hal::DeviceInfo info = open()->info();
  const auto answer = [&](const Call& call, DType dtype) {
    return variant_->fit(CaseCall(catalog_, kOp, case_of(call, dtype)).view(), info);
  };
  const Call call{.s = 64, .t = 64, .d = 64, .dv = 64};
  EXPECT_TRUE(answer(call, DType::f16).ok);
  EXPECT_TRUE(answer({.d = 128, .dv = 128}, DType::bf16).ok);
  EXPECT_EQ(catalog_.variants(kOp, "opencl")[0], variant_);
  EXPECT_THAT(answer(call, DType::f32).reason, HasSubstr("f16 and bf16 only"));
  EXPECT_THAT(answer({.d = 20}, DType::f16).reason, HasSubstr("multiple of"));
  EXPECT_THAT(answer({.d = 256, .dv = 256}, DType::f16).reason, HasSubstr("do not fit the registers"));
  info.limits.max_local_bytes = 4096;
  EXPECT_THAT(answer(call, DType::f16).reason, HasSubstr("4096 bytes of workgroup memory"));
  info.limits.matrix_shapes.clear();
  info.name = "Tesla T4";
  EXPECT_THAT(answer(call, DType::bf16).reason, HasSubstr("Tesla T4"));
}

}  // namespace
}  // namespace meshloom::tests
