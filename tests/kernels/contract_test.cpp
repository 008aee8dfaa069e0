// What every contract of the catalog must keep, whatever the op.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/partition_rule.h"
#include "kernels/core/rng.h"
#include "kernels/flash_attention/flash_attention.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/verify.h"
#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

using kernels::Attrs;
using kernels::Case;
using kernels::Contract;
using kernels::DType;
using kernels::TensorType;

class Contracts : public testing::Test {
 protected:
  void SetUp() override { kernels::add_contracts(catalog_); }

  template <typename Use>
  void for_each_case(Use use) {
    for (const Contract* contract : catalog_.contracts()) {
      std::vector<Case> cases = contract->cases();
      for (std::uint64_t seed = 0; contract->random_case && seed < 50; ++seed)
        cases.push_back(contract->random_case({seed}));
      for (const Case& test : cases) {
        SCOPED_TRACE(contract->name + " " + test.name);
        use(*contract, test);
      }
    }
  }
  // The message of what infer throws.
  std::string refusal(const std::string& op, const std::vector<TensorType>& inputs, const Attrs& attrs) {
    try {
      catalog_.contract(op).infer(inputs, attrs);
    } catch (const hal::Error& error) {
      EXPECT_EQ(error.where(), op) << error.what();
      return error.what();
    }
    return "accepted";
  }

  kernels::Catalog catalog_;
};

TensorType f32(kernels::Shape shape) { return {DType::f32, std::move(shape)}; }
TensorType i32(kernels::Shape shape) { return {DType::i32, std::move(shape)}; }

TEST_F(Contracts, HaveCasesAndRandomCases) {
  for (const Contract* contract : catalog_.contracts()) {
    SCOPED_TRACE(contract->name);
    const std::vector<Case> cases = contract->cases();
    EXPECT_GE(cases.size(), 3u);
    EXPECT_NE(contract->random_case, nullptr);
    std::set<std::string> names;
    for (const Case& test : cases)
      EXPECT_TRUE(names.insert(test.name).second) << test.name << " is there twice";
    EXPECT_FALSE(cases.front().slow);
  }
}

TEST_F(Contracts, CasesAreValidCalls) {
  for_each_case([&](const Contract& contract, const Case& test) {
    const CaseCall call(catalog_, contract.name, test);
    EXPECT_NO_THROW(kernels::verify(call.program(), catalog_, "test"));
    const kernels::CallView view = call.view();
    EXPECT_GE(contract.flops(view), 0);
    EXPECT_GE(contract.bytes(view), 0);
    const kernels::Tolerance tolerance = contract.tolerance(view);
    EXPECT_GE(tolerance.rel, 0);
    EXPECT_GE(tolerance.abs, 0);
    // Looser than this would not tell a wrong result from a right one.
    EXPECT_LT(tolerance.abs, 1e-3);
    EXPECT_LT(tolerance.rel, 1e-3);
    for (const auto& [input, output] : contract.in_place(view)) {
      const auto i = static_cast<std::size_t>(input), o = static_cast<std::size_t>(output);
      ASSERT_LT(i, view.inputs.size());
      ASSERT_LT(o, view.outputs.size());
      EXPECT_EQ(view.inputs[i].bytes(), view.outputs[o].bytes());
    }
  });
}

// "ab,b->a", "(ab)c->abc", "n.->n.{n}": one group per tensor, one character, or two in parentheses, per dimension, and braces behind; a letter stands for one size, or for sizes
// with a fixed factor.
TEST_F(Contracts, PartitionRulesMatchTheirShapes) {
  for_each_case([&](const Contract& contract, const Case& test) {
    const CaseCall call(catalog_, contract.name, test);
    const std::string rule = contract.partition(call.view());
    ASSERT_NE(rule.find("->"), std::string::npos) << rule;
    const kernels::PartitionRule parsed = kernels::partition_rule(contract, call.view(), contract.name);
    std::set<char> left;
    for (const std::string& inner : parsed.inner_inputs) left.insert(inner.begin(), inner.end());
    const auto check = [&](const std::vector<std::string>& parts, const std::vector<TensorType>& types,
                           bool input) {
      if (types.empty()) return;
      ASSERT_EQ(parts.size(), types.size()) << rule;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(static_cast<int>(parts[i].size()), types[i].rank())
            << rule << " for " << to_string(types[i]);
        for (char c : parts[i]) {
          EXPECT_TRUE(c == '.' || (c >= 'a' && c <= 'z') || (contract.local && c >= 'A' && c <= 'Z')) << rule;
          if (input) {
            left.insert(c);
          } else if (c != '.' && !call.view().inputs.empty()) {
            EXPECT_TRUE(left.count(c) || contract.local || contract.name == "elementwise")
                << rule << ": " << c << " has no source";
          }
        }
      }
    };
    check(parsed.inputs, call.view().inputs, true);
    for (const std::string& own : parsed.own_inputs) left.insert(own.begin(), own.end());
    check(parsed.outputs, call.view().outputs, false);
  });
}

TEST_F(Contracts, InputsDependOnTheSeedAlone) {
  for_each_case([&](const Contract& contract, const Case& test) {
    if (test.slow) return;
    const CaseCall call(catalog_, contract.name, test);
    const auto first = kernels::make_inputs(contract, call.view(), 5);
    const auto again = kernels::make_inputs(contract, call.view(), 5);
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].data, again[i].data) << "input " << i;
  });
}

// Every output element is written: two runs over different garbage agree.
TEST_F(Contracts, ReferencesWriteEveryElement) {
  for_each_case([&](const Contract& contract, const Case& test) {
    if (test.slow) return;
    const CaseCall call(catalog_, contract.name, test);
    const auto inputs = kernels::make_inputs(contract, call.view(), 6);
    std::vector<std::vector<kernels::HostTensor>> runs;
    for (int garbage : {0x00, 0xd5}) {
      std::vector<kernels::ConstTensorView> in;
      std::vector<kernels::TensorView> out;
      std::vector<kernels::HostTensor>& results = runs.emplace_back();
      for (const auto& tensor : inputs) in.push_back({tensor.type, tensor.data.data()});
      for (const TensorType& type : call.view().outputs) {
        results.emplace_back(type);
        std::memset(results.back().data.data(), garbage, results.back().data.size());
      }
      for (auto& tensor : results) out.push_back({tensor.type, tensor.data.data()});
      kernels::run_reference(contract, call.view(), in, out);
    }
    for (std::size_t o = 0; o < runs[0].size(); ++o)
      EXPECT_EQ(runs[0][o].data, runs[1][o].data) << "output " << o;
  });
}

TEST_F(Contracts, RefuseOtherDtypesAndUnknownAttributes) {
  for (const Contract* contract : catalog_.contracts()) {
    SCOPED_TRACE(contract->name);
    const Case test = contract->cases().front();
    Attrs attrs = test.attrs;
    attrs.set("sclae", 1.0);
    EXPECT_NE(refusal(contract->name, test.inputs, attrs).find("sclae"), std::string::npos);
    for (std::size_t i = 0; i < test.inputs.size(); ++i) {
      if (contract->view) continue;  // of any dtype
      std::vector<TensorType> inputs = test.inputs;
      inputs[i].dtype = inputs[i].dtype == DType::i8 ? DType::u8 : DType::i8;
      if (!contract->moves) {  // which take every dtype
        EXPECT_NE(refusal(contract->name, inputs, test.attrs), "accepted") << "input " << i;
      }
      inputs = test.inputs;
      inputs.pop_back();
      EXPECT_NE(refusal(contract->name, inputs, test.attrs), "accepted") << "one input fewer";
      inputs = test.inputs;
      inputs[i].shape.assign(9, 1);
      if (contract->name != "elementwise") {
        EXPECT_NE(refusal(contract->name, inputs, test.attrs), "accepted") << "9 dimensions";
      }
      inputs = test.inputs;
      inputs[i].shape.back() = 0;
      EXPECT_NE(refusal(contract->name, inputs, test.attrs), "accepted") << "a dimension of 0";
    }
    for (const auto& [name, value] : test.attrs.items()) {
      Attrs other = test.attrs;
      if (std::holds_alternative<std::string>(value))
        other.set(name, true);
      else
        other.set(name, std::string("text"));
      EXPECT_NE(refusal(contract->name, test.inputs, other).find(name), std::string::npos);
    }
  }
}

TEST_F(Contracts, SayWhatIsWrong) {
  const auto says = [&](const std::string& op, const std::vector<TensorType>& inputs, const Attrs& attrs,
                        const std::string& part) {
    const std::string text = refusal(op, inputs, attrs);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says("matmul", {f32({3, 4}), f32({5, 6})}, {}, "same inner dimension; found f32(3, 4) and f32(5, 6)");
  says("matmul", {f32({2, 3, 4}), f32({3, 4, 6})}, {}, "same batch");
  says("matmul", {f32({2, 3, 4}), f32({4, 6})}, {}, "B must have 3 dimensions");
  says("matmul", {f32({3, 4}), f32({4, 6}), f32({5})}, {{"bias", true}}, "bias must have the shape (6)");
  says("matmul", {f32({3, 4}), f32({4, 6})}, {{"activation", std::string("mish")}}, "'mish'");
  says("flash_attention", {f32({1, 5, 2, 8}), f32({1, 4, 2, 8}), f32({1, 4, 2, 8})},
       {{"scale", 1.0}, {"causal", true}}, "4 keys for 5 queries");
  says("flash_attention", {f32({1, 5, 3, 8}), f32({1, 5, 2, 8}), f32({1, 5, 2, 8})}, {{"scale", 1.0}},
       "multiple of the heads");
  const TensorType qkv = f32({1, 5, 2, 8});
  const auto attention = [&](Attrs attrs, std::vector<TensorType> more, const std::string& part) {
    attrs.set("scale", 1.0);
    std::vector<TensorType> inputs{qkv, qkv, qkv};
    inputs.insert(inputs.end(), more.begin(), more.end());
    says("flash_attention", inputs, attrs, part);
  };
  attention({{"left", std::int64_t{1} << 40}}, {}, "left must be below 2^40 to either side");
  attention({{"right", std::int64_t{0}}}, {}, "causal stands for 0");
  attention({{"right", std::int64_t{2}}, {"causal", true}}, {}, "one thing said twice");
  attention({{"soft_cap", 0.0}}, {}, "soft_cap must be positive");
  attention({{"segments", true}}, {i32({1, 5})}, "q_segments, k_segments");
  attention({{"segments", true}}, {i32({1, 5}), i32({1, 4})}, "k_segments must have the shape (1, 5)");
  attention({{"prefix", true}}, {i32({1})}, "prefix needs causal, left or right");
  attention({{"prefix", true}, {"causal", true}}, {f32({1})}, "prefix must be i32");
  attention({{"query_offset", true}}, {i32({1})}, "query_offset needs causal, left, right or slopes");
  attention({{"sink", true}}, {f32({3})}, "sink must have the shape (2)");
  attention({{"slopes", true}}, {i32({2})}, "slopes must be f32");
  attention({{"bias", true}}, {f32({2, 5, 5})}, "bias must have 4 dimensions");
  attention({{"bias", true}}, {f32({1, 3, 5, 5})}, "bias must have the shape (1, 2, 5, 5)");
  attention({{"attention_bitmask", true}}, {f32({1, 1, 5, 1})}, "attention_bitmask must be i32");
  attention({{"attention_bitmask", true}}, {i32({1, 1, 5, 5})},
            "attention_bitmask must have the shape (1, 1, 5, 1)");
  says("flash_attention", {f32({1, 5, 2, 8}), f32({1, 5, 2, 8}), f32({1, 5, 2, 8})}, {},
       "'scale' must be given");
  says("rms_norm", {f32({8}), f32({8})}, {{"eps", 1e-5}}, "x must have 2 to 8 dimensions");
  says("rms_norm", {f32({3, 8}), f32({8})}, {{"eps", 0.0}}, "eps must be positive");
  const std::vector<TensorType> norm_grad{f32({3, 8}), f32({8}), f32({3}), f32({3, 8})};
  says("rms_norm_grad", norm_grad, {{"residual", true}}, "x, w, rstd, dy, residual");
  const auto with_residual = [&](TensorType residual) {
    std::vector<TensorType> inputs = norm_grad;
    inputs.push_back(std::move(residual));
    return inputs;
  };
  says("rms_norm_grad", with_residual(f32({3, 8})), {}, "takes the inputs x, w, rstd, dy");
  says("rms_norm_grad", with_residual(f32({8, 3})), {{"residual", true}},
       "residual must have the shape (3, 8)");
  says("rms_norm_grad", with_residual({DType::bf16, {3, 8}}), {{"residual", true}}, "residual");
  says("layer_norm_grad", with_residual(f32({3, 8})), {{"residual", true}}, "x, w, mean, rstd, dy, residual");
  const auto quantized = [&](const std::string& op, std::vector<TensorType> inputs, Attrs attrs,
                             const std::string& names) {
    says(op, inputs, attrs, "takes the inputs " + names.substr(0, names.find(", residual")));
    attrs.set("residual", true);
    inputs.back() = f32({7, 3});
    says(op, inputs, attrs, "residual must have the shape (3, 7)");
    inputs.back() = {DType::bf16, {3, 7}};
    says(op, inputs, attrs, "residual must be f32");
    inputs.pop_back();
    says(op, inputs, attrs, "takes the inputs " + names);
  };
  quantized("nf4_matmul", {f32({3, 8}), {DType::u8, {7, 4}}, f32({7, 1}), f32({3, 7})},
            {{"columns", std::int64_t{8}}, {"block", std::int64_t{8}}, {"trans_b", true}},
            "x, codes, scales, residual");
  quantized("block_quantized_matmul", {f32({3, 32}), {DType::u8, {7, 34}}, f32({3, 7})},
            {{"columns", std::int64_t{32}}, {"format", std::string("q8_0")}}, "x, w, residual");
  says("rope", {f32({1, 2, 3, 7})},
       {{"theta", 1e4},
        {"pairing", std::string("half")},
        {"dims", std::int64_t{7}},
        {"offset", std::int64_t{0}}},
       "dims must be even");
  const auto factors = [&](const std::string& text, const std::string& part) {
    says("rope", {f32({1, 2, 3, 8})},
         {{"theta", 1e4},
          {"pairing", std::string("half")},
          {"dims", std::int64_t{4}},
          {"offset", std::int64_t{0}},
          {"factors", text}},
         part);
  };
  factors("1", "one number for each of 2 pairs");
  factors("1 0", "factors must be positive");
  factors("1 x", "must be numbers with a space between them");
  factors("1 2 ", "must be numbers with a space between them");
  says("embedding", {f32({3, 8}), f32({2})}, {}, "ids must be i32");
  says("cross_entropy", {f32({3, 8}), i32({4})}, {}, "targets must have the shape (3)");
  says("reduce_sum", {f32({3, 8})}, {{"keep", std::int64_t{2}}}, "less than the rank");
  says("reshape", {f32({3, 8})}, {{"shape", std::vector<std::int64_t>{5, 5}}}, "as many elements");
  says("permute", {f32({3, 8})}, {{"order", std::vector<std::int64_t>{0, 0}}}, "every dimension");
  says("elementwise", {f32({3, 8}), f32({3})},
       {{"shape", std::vector<std::int64_t>{3, 8}}, {"expr", std::string("add(x0,x1)")}}, "a trailing part");
  says("elementwise", {f32({3, 8})},
       {{"shape", std::vector<std::int64_t>{3, 8}}, {"expr", std::string("add(x0,x1)")}},
       "an input for every x");
  says("elementwise", {f32({3, 8})},
       {{"shape", std::vector<std::int64_t>{3, 8}}, {"expr", std::string("ad(x0)")}}, "known function");
  says("elementwise", std::vector<TensorType>(8, f32({3})),
       {{"shape", std::vector<std::int64_t>{3}}, {"expr", std::string("x0")}},
       "at most 8 inputs and outputs");
  says("adamw", {f32({3}), f32({4}), f32({3}), f32({3}), f32({4})},
       {{"beta1", 0.9}, {"beta2", 0.9}, {"eps", 1e-8}, {"weight_decay", 0.0}}, "g must have the shape (3)");
  says("iota", {}, {{"count", std::int64_t{0}}}, "count must be positive");
  says("stack", {f32({1}), f32({2})}, {}, "shape (1)");
  const auto bits = [&](std::vector<TensorType> inputs, std::string expr, Attrs more,
                        const std::string& part) {
    more.set("expr", std::move(expr));
    says("mask_bits", std::move(inputs), std::move(more), part);
  };
  const Attrs pairs{{"queries", std::int64_t{4}}, {"keys", std::int64_t{4}}};
  bits({}, "x0 <", pairs, "at character 4 must be a function");
  bits({}, "x2", pairs, "an input for every x");
  bits({}, "x0;x1", pairs, "must have one root");
  bits({}, "x0", {{"queries", std::int64_t{4}}}, "'keys' must be given");
  bits({}, "x0", {{"queries", std::int64_t{4}}, {"keys", std::int64_t{1} << 24}}, "below 2^24");
  bits({i32({2, 3}), i32({1, 3})}, "x0", {{"positions", true}}, "as many rows");
  says("relative_bias", {f32({3, 2})},
       {{"queries", std::int64_t{4}}, {"keys", std::int64_t{4}}, {"row", std::string("x1")}},
       "an input for every x");
  says("relative_bias_grad", {f32({2, 3, 4, 4})}, {{"rows", std::int64_t{4}}, {"row", std::string("x0")}},
       "dy must have the shape (1, 3, 4, 4)");
}

TEST_F(Contracts, MatmulDimsAreDecoded) {
  const Case test{"t",
                  {f32({5, 4, 3}), f32({5, 6, 4}), f32({6}), f32({5, 3, 6})},
                  {{"trans_a", true},
                   {"trans_b", true},
                   {"bias", true},
                   {"residual", true},
                   {"activation", std::string("gelu_tanh")}}};
  const CaseCall call(catalog_, "matmul", test);
  const kernels::MatmulDims d = kernels::matmul_dims(call.view());
  EXPECT_EQ(d.g, 5);
  EXPECT_EQ(d.m, 3);
  EXPECT_EQ(d.n, 6);
  EXPECT_EQ(d.k, 4);
  EXPECT_TRUE(d.trans_a && d.trans_b);
  EXPECT_EQ(d.bias, 2);
  EXPECT_EQ(d.residual, 3);
  EXPECT_EQ(d.activation, kernels::Activation::gelu_tanh);
  EXPECT_EQ(call.contract().flops(call.view()), 2.0 * 5 * 3 * 6 * 4);
}

TEST_F(Contracts, VisiblePairsAreCounted) {
  for (const std::int64_t left : {std::int64_t{0}, std::int64_t{2}, kernels::kUnlimited})
    for (const std::int64_t right : {std::int64_t{0}, std::int64_t{3}, kernels::kUnlimited})
      for (std::int64_t s = 1; s < 9; ++s)
        for (std::int64_t t = 1; t < 9; ++t) {
          const kernels::AttentionMask mask{.s = s, .t = t, .offset = t - s, .left = left, .right = right};
          std::int64_t pairs = 0;
          for (std::int64_t i = 0; i < s; ++i)
            for (std::int64_t j = 0; j < t; ++j) pairs += j >= i + t - s - left && j <= i + t - s + right;
          EXPECT_EQ(mask.window_pairs(), pairs) << s << " " << t << " " << left << " " << right;
        }
}

// Only segments, or bits beside a window, may leave a block that nobody sees called partial.
TEST_F(Contracts, BlocksOfMasksAreClassified) {
  kernels::Rng rng(5);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t s = rng.integer(1, 12), t = rng.integer(1, rng.flip(0.2) ? 80 : 12);
    std::vector<std::int32_t> q_segments, k_segments;
    std::vector<std::uint32_t> bits;
    kernels::AttentionMask mask{.s = s, .t = t, .offset = rng.integer(-4, 12)};
    if (rng.flip()) mask.left = rng.integer(0, 6);
    if (rng.flip()) mask.right = rng.integer(0, 6);
    if (rng.flip(0.3)) mask.prefix = rng.integer(0, t);
    if (const std::int64_t most = rng.integer(0, 2); most > 0) {
      for (std::int64_t i = 0; i < s; ++i) q_segments.push_back(static_cast<std::int32_t>(i * most / s));
      for (std::int64_t j = 0; j < t; ++j) k_segments.push_back(static_cast<std::int32_t>(j * most / t));
      mask.q_segments = q_segments.data();
      mask.k_segments = k_segments.data();
    }
    if (rng.flip(0.4)) {
      for (std::int64_t word = 0; word < s * mask.bits_words(); ++word)
        bits.push_back(static_cast<std::uint32_t>(rng.integer(0, 2) * (std::int64_t{0xffffffff} / 2)) ^
                       static_cast<std::uint32_t>(rng.flip(0.3) ? 1 << rng.integer(0, 11) : 0));
      mask.bitmask = bits.data();
    }
    for (int block = 0; block < 20; ++block) {
      const std::int64_t q = rng.integer(0, s - 1), q_end = rng.integer(q + 1, s);
      const std::int64_t k = rng.integer(0, t - 1), k_end = rng.integer(k + 1, t);
      std::int64_t seen = 0;
      for (std::int64_t i = q; i < q_end; ++i)
        for (std::int64_t j = k; j < k_end; ++j) seen += mask.visible(i, j);
      const kernels::Cover cover = mask.cover(q, q_end, k, k_end);
      if (cover == kernels::Cover::empty) {
        EXPECT_EQ(seen, 0);
      }
      EXPECT_EQ(cover == kernels::Cover::full, seen == (q_end - q) * (k_end - k));
      if (!mask.q_segments &&
          (!mask.bitmask || mask.window_cover(q, q_end, k, k_end) == kernels::Cover::full)) {
        EXPECT_EQ(cover == kernels::Cover::empty, seen == 0);
      }
    }
  }
}

}  // namespace
}  // namespace meshloom::tests
