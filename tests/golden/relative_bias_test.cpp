// Biases by buckets of distances against Hugging Face transformers' T5 (see make_relative_bias_golden.py).
#include "layers/position/relative_bias.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/core/catalog.h"
#include "kernels/elementwise/expression.h"
#include "tests/golden/golden_file.h"

namespace meshloom {
namespace {

using kernels::DType;
using layers::RelativeBias;

class RelativeBiases : public testing::Test {
 protected:
  RelativeBiases() { kernels::add_contracts(catalog_); }

  // The op's only output, of so many elements.
  std::vector<float> run(const std::string& op, const kernels::TensorType& type,
                         const std::vector<float>& input, const kernels::Attrs& attrs) const {
    const kernels::Contract& contract = catalog_.contract(op);
    const std::vector<kernels::TensorType> types{type}, results = contract.infer(types, attrs);
    std::vector<float> output(static_cast<std::size_t>(results[0].elements()));
    const kernels::ConstTensorView in{type, reinterpret_cast<const std::byte*>(input.data())};
    const kernels::TensorView out{results[0], reinterpret_cast<std::byte*>(output.data())};
    kernels::run_reference(contract, {op, types, results, attrs}, {&in, 1}, {&out, 1});
    return output;
  }

  kernels::Catalog catalog_;
  Golden golden_{"relative_bias"};
};

TEST_F(RelativeBiases, EqualT5s) {
  constexpr std::int64_t kHeads = 3, kLength = 24, kBuckets = 8;
  for (const bool both : {false, true}) {
    const std::string name = both ? "both" : "backward", bucket = RelativeBias::bucket(kBuckets, 20, both);
    SCOPED_TRACE(name + ": " + bucket);
    EXPECT_EQ(run("relative_bias", {DType::f32, {kBuckets, kHeads}}, golden_.read<float>(name + "/weight"),
                  {{"queries", kLength}, {"keys", kLength}, {"row", bucket}}),
              golden_.read<float>(name + "/bias"));
    const std::vector<float> got =
        run("relative_bias_grad", {DType::f32, {1, kHeads, kLength, kLength}},
            golden_.read<float>(name + "/cotangent"), {{"rows", kBuckets}, {"row", bucket}});
    const std::vector<float> want = golden_.read<float>(name + "/gradient");
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-5 * std::max(1.0f, std::abs(want[i])));
  }
}

TEST_F(RelativeBiases, BucketsOfFarDistancesAreT5s) {
  constexpr int kFar = 200;
  for (const bool both : {false, true})
    for (const auto& [buckets, most] : {std::pair{32, 128}, std::pair{64, 200}, std::pair{16, 40}}) {
      const std::string name = (both ? "both/buckets_" : "backward/buckets_") + std::to_string(buckets) +
                               "_" + std::to_string(most);
      const std::vector<std::int32_t> want = golden_.read<std::int32_t>(name);
      const kernels::Expression bucket = kernels::parse_expression(RelativeBias::bucket(buckets, most, both));
      for (int distance = -kFar; distance <= kFar; ++distance) {
        const double x = distance;
        double got = -1;
        kernels::evaluate(bucket, &x, &got);
        EXPECT_EQ(got, want[static_cast<std::size_t>(distance + kFar)]) << name << ", distance " << distance;
      }
    }
}

}  // namespace
}  // namespace meshloom
