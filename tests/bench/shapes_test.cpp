// The text forms of calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/cli/options.h"
#include "bench/measure/workload.h"
#include "hal/error.h"
#include "kernels/core/rng.h"

namespace meshloom::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const kernels::Catalog& contracts() {
  static const kernels::Catalog* catalog = [] {
    auto* c = new kernels::Catalog;
    kernels::add_contracts(*c);
    return c;
  }();
  return *catalog;
}

std::vector<Workload> parse(const std::string& op, const std::string& text) {
  return parse_shapes(contracts(), op, text, hal::DType::f32);
}

TEST(Shapes, MatmulTakesMNKWithOptionsAndLists) {
  const auto found = parse("matmul", "128x576x49152,8x16x32:tb; 4x5x6x7:ta:bias ;");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].call(), "matmul f32(128, 49152), f32(49152, 576)");
  EXPECT_EQ(found[0].shape, "128x576x49152");
  EXPECT_EQ(found[1].call(), "matmul f32(8, 32), f32(16, 32) {trans_b=true}");
  EXPECT_EQ(found[2].call(), "matmul f32(4, 7, 5), f32(4, 7, 6), f32(6) {bias=true, trans_a=true}");
  EXPECT_EQ(parse("matmul", "2x3x4:gelu_tanh")[0].call(),
            "matmul f32(2, 4), f32(4, 3) {activation=\"gelu_tanh\"}");
}

TEST(Shapes, AttentionTakesCommasOrX) {
  const auto found = parse("flash_attention", "2,64,4,2,16;1x8x2x2x16:full:t=5");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].call(),
            "flash_attention f32(2, 64, 4, 16), f32(2, 64, 2, 16), f32(2, 64, 2, 16) "
            "{causal=true, scale=0.25}");
  EXPECT_EQ(found[1].call(),
            "flash_attention f32(1, 8, 2, 16), f32(1, 5, 2, 16), f32(1, 5, 2, 16) {scale=0.25}");
  EXPECT_EQ(parse("flash_attention_grad", "2,64,4,2,16")[0].inputs.size(), 6u);
  const auto pairs = parse("flash_attention_bias_grad", "2,64,4,2,16:t=70:bias:bitmask")[0];
  EXPECT_EQ(pairs.inputs[6].shape, (kernels::Shape{1, 4, 64, 70}));
  EXPECT_EQ(pairs.inputs[7].shape, (kernels::Shape{1, 1, 64, 3}));
}

TEST(Shapes, RowsAndRope) {
  EXPECT_EQ(parse("rms_norm", "7x64")[0].call(), "rms_norm f32(7, 64), f32(64) {eps=1e-05}");
  for (const char* op :
       {"rms_norm_grad", "layer_norm", "layer_norm_grad", "cross_entropy", "cross_entropy_grad"})
    EXPECT_EQ(parse(op, "7x64")[0].inputs[0].shape, (kernels::Shape{7, 64})) << op;
  EXPECT_EQ(parse("rms_norm_grad", "7x64:residual")[0].call(),
            "rms_norm_grad f32(7, 64), f32(64), f32(7), f32(7, 64), f32(7, 64) {residual=true}");
  EXPECT_EQ(parse("rope", "2x5x4x16")[0].outputs[0].shape, (kernels::Shape{2, 5, 4, 16}));
}

// What a row prints can be typed again, for every case of every op.
TEST(Shapes, EveryCallReadsBackAsItself) {
  int count = 0;
  for (const kernels::Contract* contract : contracts().contracts()) {
    std::vector<kernels::Case> cases = contract->cases();
    if (contract->random_case)
      for (std::uint64_t seed = 0; seed < 20; ++seed) cases.push_back(contract->random_case({seed}));
    for (const kernels::Case& item : cases) {
      const Workload workload = make_workload(*contract, item);
      if (workload.shape.empty() || workload.call().find('(') == std::string::npos) continue;
      const auto again = parse(contract->name, workload.shape);
      ASSERT_EQ(again.size(), 1u) << workload.call();
      EXPECT_EQ(again[0].call(), workload.call());
      EXPECT_EQ(parse(contract->name, workload.call())[0].call(), workload.call());
      ++count;
    }
  }
  EXPECT_GT(count, 300);
}

TEST(Shapes, WrongOnesAreToldInOneLine) {
  const auto told = [](const std::string& op, const std::string& text) -> std::string {
    try {
      parse(op, text);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(told("matmul", "3x4"), HasSubstr("matmul takes MxNxK or GxMxNxK"));
  EXPECT_THAT(told("matmul", "3x4xfive"), HasSubstr("a number from 1"));
  EXPECT_THAT(told("matmul", "3x0x5"), HasSubstr("a number from 1"));
  EXPECT_THAT(told("matmul", "3x4x99999999999999"), HasSubstr("2^40"));
  EXPECT_THAT(told("matmul", "3x4x5:tc"), HasSubstr("found 'tc'"));
  EXPECT_THAT(told("matmul", "3x4x5:relu:gelu"), HasSubstr("one activation; found '3x4x5:relu:gelu'"));
  EXPECT_THAT(told("matmul", ""), HasSubstr("must name a shape"));
  EXPECT_THAT(told("matmul", "f32(3, 4), f32(5, 6)"), HasSubstr("same inner dimension"));
  EXPECT_THAT(told("matmul", "f33(3, 4), f32(4, 6)"), HasSubstr("f33"));
  EXPECT_THAT(told("matmul", "f32(3, 4), f32(4, 6) {trans_a=maybe}"), HasSubstr("an attribute must be"));
  EXPECT_THAT(told("flash_attention", "1,2,3"), HasSubstr("B,S,H,KV,D"));
  EXPECT_THAT(told("permute", "3x4"), HasSubstr("no shorthand"));
  EXPECT_THAT(told("matmull", "3x4x5"), HasSubstr("did you mean 'matmul'"));
}

TEST(Shapes, AttentionCountsBytesThatWindowsShow) {
  const auto bytes = [](const std::string& shape) {
    const Workload workload = parse("flash_attention", shape)[0];
    return workload.contract->bytes(workload.view());
  };
  const double query = 4 * 16 * 2 * 8, key = 4 * 2 * 8;  // q, and one position's key
  const double lse = 4 * 2 * 16;
  EXPECT_DOUBLE_EQ(bytes("1,16,2,2,8:t=64"), 2 * query + lse + 2 * 64 * key);
  EXPECT_DOUBLE_EQ(bytes("1,16,2,2,8:t=64:window=4"), 2 * query + lse + 2 * (16 + 3) * key);
  EXPECT_DOUBLE_EQ(bytes("1,16,2,2,8:bias") - bytes("1,16,2,2,8"), 4.0 * 2 * (16 * 17 / 2))
      << "half of a causal bias";
}

// Whatever is typed, the answer is workloads or an Error.
TEST(Shapes, AnyTextIsReadOrRefused) {
  const std::string alphabet = "0123456789x,;:()[]{}=\"tabfs32 .-e";
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    kernels::Rng rng(seed);
    std::string text = rng.flip() ? "f32(4, 64), f32(64) {eps=1e-05}" : "4x5x6:ta;7x8x9";
    for (std::int64_t i = rng.integer(1, 6); i > 0; --i)
      text[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1))] =
          alphabet[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(alphabet.size()) - 1))];
    for (const char* op : {"matmul", "rms_norm", "flash_attention"}) {
      try {
        parse(op, text);
      } catch (const Error&) {
      }
    }
  }
}

TEST(Options, DurationsAndFractions) {
  EXPECT_DOUBLE_EQ(parse_duration("90", "--t"), 90);
  EXPECT_DOUBLE_EQ(parse_duration("10m", "--t"), 600);
  EXPECT_DOUBLE_EQ(parse_duration("1.5h", "--t"), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("50ms", "--t"), 0.05);
  EXPECT_DOUBLE_EQ(parse_fraction("5%", "--f"), 0.05);
  EXPECT_DOUBLE_EQ(parse_fraction("0.05", "--f"), 0.05);
  for (const char* text : {"", "-1", "m", "1d", "nan", "inf", "0"})
    EXPECT_THROW(parse_duration(text, "--t"), Error) << text;
  for (const char* text : {"", "-1", "%", "5 percent", "nan", "50"})
    EXPECT_THROW(parse_fraction(text, "--f"), Error) << text;
}

}  // namespace
}  // namespace meshloom::bench
