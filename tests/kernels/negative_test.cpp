// Each check of the harness must find what it is there for: variants and contracts with one planted bug.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"
#include "kernels/core/compare.h"
#include "kernels/flash_attention/flash_attention.h"
#include "kernels/matmul/matmul.h"
#include "tests/kernels/finite_difference.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/planted.h"

namespace meshloom::tests {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::TensorType;
using testing::HasSubstr;

Fit always(const CallView&, const hal::DeviceInfo&) { return Fit::yes(); }

// The reference with other attributes.
void without_mask(const EncodeArgs& args) {
  on_host(args, [reference = args.choice.variant->contract->reference](Host& host) {
    kernels::Attrs attrs{{"scale", host.call.attrs.number("scale")}};
    reference({host.call.op, host.call.inputs, host.call.outputs, attrs}, host.inputs, host.outputs);
  });
}

class Negative : public testing::Test {
 protected:
  void SetUp() override {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    device_ = hal::checked(registry_.open("cpu"));
  }

  const kernels::Variant& variant(const std::string& op, void (*encode)(const EncodeArgs&),
                                  Fit (*fit)(const CallView&, const hal::DeviceInfo&) = always) {
    const std::string name = "planted " + std::to_string(++planted_);
    catalog_.add(kernels::Variant{
        .op = op, .backend = "cpu", .name = name, .about = "has a bug", .fit = fit, .encode = encode});
    return *catalog_.find(op, "cpu", name);
  }
  kernels::Case find_case(const std::string& op, const std::string& name) {
    for (const kernels::Case& test : catalog_.contract(op).cases())
      if (test.name == name) return test;
    throw hal::Error(op, "must have the case '" + name + "'");
  }
  // All failures of one case, joined.
  std::string run(const kernels::Variant& tested, const std::string& test, std::uint64_t seed = 1) {
    const Outcome outcome =
        run_variant(*device_, tested, CaseCall(catalog_, tested.op, find_case(tested.op, test)), seed);
    std::string text;
    for (const std::string& failure : outcome.failures) text += failure + "\n";
    return text;
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
  std::unique_ptr<hal::Device> device_;
  int planted_ = 0;
};

TEST_F(Negative, TheUnspoiledVariantPasses) {
  const kernels::Variant& honest =
      variant("matmul", [](const EncodeArgs& args) { spoiled(args, [](Host&) {}); });
  EXPECT_EQ(run(honest, "tail"), "");
  EXPECT_EQ(run(honest, "residual"), "");
}

TEST_F(Negative, WrongTailOfTheInnerDimension) {
  // K is rounded down to a multiple of 4.
  const auto& bad = variant("matmul", [](const EncodeArgs& args) {
    spoiled(args, [](Host& host) {
      const kernels::MatmulDims d = kernels::matmul_dims(host.call);
      for (std::int64_t m = 0; m < d.m; ++m)
        for (std::int64_t n = 0; n < d.n; ++n) {
          double sum = 0;
          for (std::int64_t k = 0; k < d.k / 4 * 4; ++k)
            sum += static_cast<double>(host.inputs[0].as<float>()[m * d.k + k]) *
                   host.inputs[1].as<float>()[k * d.n + n];
          host.outputs[0].as<float>()[m * d.n + n] = static_cast<float>(sum);
        }
    });
  });
  EXPECT_EQ(run(bad, "square"), "");
  EXPECT_THAT(run(bad, "tail"), HasSubstr("elements of f32(37, 53) are wrong"));
}

TEST_F(Negative, WrongTailOfTheRows) {
  // The last row of an incomplete tile is not computed.
  const auto& bad = variant("matmul", [](const EncodeArgs& args) {
    spoiled(args, [](Host& host) {
      const kernels::MatmulDims d = kernels::matmul_dims(host.call);
      if (d.m % 16 == 0) return;
      std::fill_n(host.outputs[0].as<float>() + (d.m - 1) * d.n, d.n, 0.0f);
    });
  });
  EXPECT_THAT(run(bad, "tail"), HasSubstr("53 of 1961 elements"));
}

TEST_F(Negative, TransposedTile) {
  const auto& bad = variant("matmul", [](const EncodeArgs& args) {
    spoiled(args, [](Host& host) {
      const kernels::MatmulDims d = kernels::matmul_dims(host.call);
      float* c = host.outputs[0].as<float>();
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t j = 0; j < i; ++j) std::swap(c[i * d.n + j], c[j * d.n + i]);
    });
  });
  EXPECT_THAT(run(bad, "square"), HasSubstr("12 of 4096 elements"));
}

TEST_F(Negative, DroppedCausalMask) {
  const auto& bad = variant("flash_attention", without_mask);
  EXPECT_THAT(run(bad, "tail"), HasSubstr("output 0"));
  EXPECT_EQ(run(bad, "tail-full"), "");
  EXPECT_EQ(run(bad, "decode"), "");  // one query sees every key
  const auto& bad_grad = variant("flash_attention_grad", without_mask);
  const std::string failures = run(bad_grad, "tail");
  for (const char* output : {"output 0", "output 1", "output 2"}) EXPECT_THAT(failures, HasSubstr(output));
}

TEST_F(Negative, AProbabilityThatIsSlightlyOff) {
  // One probability of about 1/1000 among thousands, off by a hundredth: only a tight tolerance sees it.
  const auto& bad = variant("cross_entropy_grad", [](const EncodeArgs& args) {
    spoiled(args, [](Host& host) {
      float* row = host.outputs[0].as<float>();
      *std::max_element(row, row + 4099) *= 1.01f;
    });
  });
  EXPECT_THAT(run(bad, "wide"), HasSubstr("1 of 12297 elements"));
}

TEST_F(Negative, AnElementThatIsNotWritten) {
  const auto& bad = variant("iota", [](const EncodeArgs& args) {
    on_host(args, [](Host& host) {
      for (std::int64_t i = 0; i + 1 < host.call.outputs[0].elements(); ++i)
        host.outputs[0].as<std::int32_t>()[i] = static_cast<std::int32_t>(i);
    });
  });
  EXPECT_THAT(run(bad, "257"), HasSubstr("the first is element 256"));
}

TEST_F(Negative, AnOverwrittenCanary) {
  const auto& bad = variant("square_sum", [](const EncodeArgs& args) {
    spoiled(
        args, [](Host& host) { host.outputs[0].as<float>()[1] = 0; }, 4);
  });
  EXPECT_THAT(run(bad, "vector"), HasSubstr("output 0: wrote outside its 4 bytes, at byte 4"));
}

TEST_F(Negative, AChangedInput) {
  const auto& bad = variant("rms_norm", [](const EncodeArgs& args) {
    spoiled(args, [](Host& host) { const_cast<float*>(host.inputs[1].as<float>())[0] += 1; });
  });
  EXPECT_THAT(run(bad, "rows"), HasSubstr("input 1: an input was changed"));
}

TEST_F(Negative, OutputsWrittenBeforeInputsAreRead) {
  // Right, as long as x is not overwritten: reads its partner after writing it.
  const auto& bad = variant("rope", [](const EncodeArgs& args) {
    on_host(args, [](Host& host) {
      std::vector<std::byte> copy(static_cast<std::size_t>(host.call.inputs[0].bytes()));
      kernels::Catalog catalog;
      kernels::add_contracts(catalog);
      std::memset(host.outputs[0].data, 0, copy.size());
      std::memcpy(copy.data(), host.inputs[0].data, copy.size());
      catalog.contract("rope").reference(
          host.call, std::vector<kernels::ConstTensorView>{{host.call.inputs[0], copy.data()}}, host.outputs);
    });
  });
  const std::string failures = run(bad, "half");
  EXPECT_THAT(failures, HasSubstr("output 0 in place of input 0"));
  EXPECT_EQ(std::count(failures.begin(), failures.end(), '\n'), 1);
}

TEST_F(Negative, OtherBitsTheSecondTime) {
  const auto& bad = variant("matmul", [](const EncodeArgs& args) {
    auto runs = std::make_shared<int>(0);
    spoiled(args, [runs](Host& host) {
      float& first = host.outputs[0].as<float>()[0];
      if ((*runs)++ == 1) first = std::nextafter(first, 1e9f);
    });
  });
  EXPECT_THAT(run(bad, "square"), HasSubstr("other bits"));
}

TEST_F(Negative, ARefusalWithoutAReason) {
  const auto& bad = variant(
      "matmul", [](const EncodeArgs&) {},
      [](const CallView&, const hal::DeviceInfo&) { return Fit::no(""); });
  EXPECT_THAT(run(bad, "square"), HasSubstr("refused without a reason"));
}

TEST_F(Negative, AWrongGradient) {
  kernels::Catalog catalog;
  kernels::Contract contract = catalog_.contract("rms_norm");
  contract.name = "wrong_norm";
  contract.gradient = [](const kernels::GradientArgs& args) -> std::vector<kernels::Tensor> {
    std::vector<kernels::Tensor> good = args.builder.call(
        "rms_norm_grad", {args.inputs[0], args.inputs[1], args.outputs[1], args.cotangents[0]});
    return {args.cotangents[0], good[1]};
  };
  kernels::add_contracts(catalog);
  catalog.add(contract);
  const GradientCheck check = check_gradient(catalog, "wrong_norm", find_case("rms_norm", "rows"), 1);
  ASSERT_FALSE(check.failures.empty());
  for (const std::string& failure : check.failures) EXPECT_THAT(failure, HasSubstr("input 0"));
}

TEST_F(Negative, AGradientOffByOneInAThousand) {
  kernels::Catalog catalog;
  kernels::Contract contract = catalog_.contract("matmul");
  contract.name = "wrong_matmul";
  contract.infer = [](const std::vector<TensorType>& inputs,
                      const kernels::Attrs&) -> std::vector<TensorType> {
    return {{hal::DType::f32, {inputs[0].dim(0), inputs[1].dim(1)}}};
  };
  contract.gradient = [](const kernels::GradientArgs& args) -> std::vector<kernels::Tensor> {
    const kernels::Tensor da = kernels::matmul(args.cotangents[0], args.inputs[1], {.trans_b = true});
    const kernels::Tensor off = args.builder.call1(
        "elementwise", {da}, {{"shape", da.shape()}, {"expr", std::string("mul(x0,1.001)")}});
    return {off, kernels::matmul(args.inputs[0], args.cotangents[0], {.trans_a = true})};
  };
  kernels::add_contracts(catalog);
  catalog.add(contract);
  const GradientCheck check = check_gradient(catalog, "wrong_matmul", find_case("matmul", "tail"), 1);
  EXPECT_FALSE(check.failures.empty());
}

// Below 2^-14 the steps of f16 grow no smaller: a number may be rounded to a neighbour there, not further.
TEST(Compare, SubnormalNumbers) {
  const TensorType type{hal::DType::f16, {2}};
  const auto compare = [&](std::vector<std::uint16_t> want, std::vector<std::uint16_t> got) {
    return kernels::compare({type, reinterpret_cast<std::byte*>(want.data())},
                            {type, reinterpret_cast<std::byte*>(got.data())}, {1e-6, 1e-6, 0.01});
  };
  EXPECT_TRUE(compare({5, 0}, {6, 1}).ok);
  EXPECT_FALSE(compare({5, 0}, {7, 1}).ok);
  EXPECT_FALSE(compare({0x2000, 0}, {0x2000, 2}).ok);
}

TEST(Compare, NumbersThatAreNot) {
  const TensorType type{hal::DType::f32, {3}};
  const auto compare = [&](std::vector<float> want, std::vector<float> got, kernels::Tolerance tolerance) {
    return kernels::compare({type, reinterpret_cast<std::byte*>(want.data())},
                            {type, reinterpret_cast<std::byte*>(got.data())}, tolerance);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const kernels::Tolerance loose{0.5, 0.5, 0};
  EXPECT_TRUE(compare({1, nan, inf}, {1.4f, nan, inf}, loose).ok);
  EXPECT_FALSE(compare({1, 2, 3}, {1, nan, 3}, loose).ok);
  EXPECT_FALSE(compare({1, nan, 3}, {1, 2, 3}, loose).ok);
  EXPECT_FALSE(compare({1, inf, 3}, {1, -inf, 3}, loose).ok);
  EXPECT_FALSE(compare({1, inf, 3}, {1, 1e30f, 3}, loose).ok);
  EXPECT_FALSE(compare({1, 2, 3}, {1, 2, 3.0000005f}, {}).ok);
  EXPECT_TRUE(compare({1, 2, 3}, {1, 2, 3}, {}).ok);
  // abs counts from the largest or from scale, rel from each element.
  EXPECT_TRUE(compare({0, 0, 3}, {0.29f, 0, 3}, {0, 0.1, 0}).ok);
  EXPECT_FALSE(compare({0, 0, 3}, {0.31f, 0, 3}, {0, 0.1, 0}).ok);
  EXPECT_TRUE(compare({0, 0, 3}, {0.9f, 0, 3}, {0, 0.1, 10}).ok);
  EXPECT_FALSE(compare({0, 0, 3}, {0.1f, 0, 3}, {0.1, 0, 0}).ok);
}

}  // namespace
}  // namespace meshloom::tests
