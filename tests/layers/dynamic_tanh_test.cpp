#include "layers/norm/dynamic_tanh.h"

#include <gtest/gtest.h>

#include <cmath>

#include "layers/config/tree.h"
#include "tests/layers/run_layer.h"

namespace meshloom::tests {
namespace {

// y = weight tanh(alpha x) + bias, and the gradients of sum(y * cotangent).
TEST(DynamicTanh, IsWhatThePaperSays) {
  const Numbers x = layer_input(), cotangent = random_numbers("dy", kTokens * kDim, 1),
                weight = random_numbers("w", kDim, 1), bias = random_numbers("b", kDim, 1);
  const double alpha = 0.75;
  const LayerResult got = run_layer(
      "DynamicTanh{initial_alpha=2}", x,
      {{"alpha", {static_cast<float>(alpha)}}, {"weight", weight}, {"bias", bias}, {"cotangent", cotangent}});
  std::vector<double> dalpha(1), dweight(kDim), dbias(kDim);
  Numbers y(x.size()), dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t feature = i % kDim;
    const double t = std::tanh(alpha * x[i]), slope = weight[feature] * (1 - t * t), dy = cotangent[i];
    y[i] = static_cast<float>(weight[feature] * t + bias[feature]);
    dx[i] = static_cast<float>(dy * slope * alpha);
    dalpha[0] += dy * slope * x[i];
    dweight[feature] += dy * t;
    dbias[feature] += dy;
  }
  const auto floats = [](const std::vector<double>& values) { return Numbers(values.begin(), values.end()); };
  expect_near(got.y, y);
  expect_near(got.gradients.at("x"), dx);
  expect_near(got.gradients.at("alpha"), floats(dalpha));
  expect_near(got.gradients.at("weight"), floats(dweight));
  expect_near(got.gradients.at("bias"), floats(dbias));
}

TEST(DynamicTanh, StartsAsTanhOfItsField) {
  const auto config = layers::parse("DynamicTanh{initial_alpha=0.25}", layer_classes(), "layer");
  dynamic_cast<layers::Layer::Config&>(*config).dims = layers::Layer::same(kDim);
  const auto module = dynamic_cast<layers::Layer::Config&>(*config).build({});
  std::map<std::string, Numbers> first;
  for (const layers::Parameter& p : module->parameters()) {
    Numbers& values = first[p.path];
    values.resize(static_cast<std::size_t>(p.type.elements()));
    p.initialize(1, 0, p.type.elements(), values.data());
  }
  EXPECT_EQ(first, (std::map<std::string, Numbers>{
                       {"alpha", {0.25f}}, {"weight", Numbers(kDim, 1)}, {"bias", Numbers(kDim, 0)}}));
}

}  // namespace
}  // namespace meshloom::tests
