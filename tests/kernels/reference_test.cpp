// References against what can be checked without them: by hand, or by the definition in plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/flash_attention/flash_attention.h"
#include "kernels/iota/iota.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "tests/kernels/interpret.h"

namespace meshloom::tests {
namespace {

using kernels::DType;
using kernels::Shape;
using kernels::Tensor;

// Writes a program with the builder functions and runs it.
class References : public testing::Test {
 protected:
  void SetUp() override { kernels::add_contracts(catalog_); }

  Tensor floats(Shape shape, const std::vector<float>& values) {
    return input({DType::f32, std::move(shape)}, values.data(), values.size() * 4);
  }
  Tensor integers(Shape shape, const std::vector<std::int32_t>& values) {
    return input({DType::i32, std::move(shape)}, values.data(), values.size() * 4);
  }
  Tensor random(Shape shape, std::uint64_t seed) {
    kernels::HostTensor tensor({DType::f32, std::move(shape)});
    kernels::fill_uniform({tensor.type, tensor.data.data()}, seed, -1, 1);
    return input(tensor.type, tensor.data.data(), tensor.data.size());
  }
  std::vector<float> run(Tensor tensor) {
    values_ = interpret(program_, catalog_, std::move(values_));
    const kernels::HostTensor& result = values_.at(tensor.id);
    return {result.as<float>(), result.as<float>() + result.type.elements()};
  }
  void expect(Tensor tensor, const std::vector<double>& want, double tolerance = 1e-6) {
    const std::vector<float> got = run(tensor);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
  }

  kernels::Catalog catalog_;
  kernels::Program program_;
  kernels::Builder builder_{catalog_, program_};
  Values values_;

 private:
  Tensor input(kernels::TensorType type, const void* data, std::size_t bytes) {
    const Tensor tensor =
        builder_.input("in" + std::to_string(program_.inputs.size()), type, kernels::Role::input);
    kernels::HostTensor& host = values_[tensor.id] = kernels::HostTensor(type);
    EXPECT_EQ(bytes, host.data.size());
    std::memcpy(host.data.data(), data, bytes);
    return tensor;
  }
};

TEST_F(References, Matmul) {
  const Tensor a = floats({2, 3}, {1, 2, 3, 4, 5, 6}), b = floats({3, 2}, {1, 0, 2, -1, 0, 3});
  expect(kernels::matmul(a, b), {5, 7, 14, 13});
  const Tensor at = floats({3, 2}, {1, 4, 2, 5, 3, 6}), bt = floats({2, 3}, {1, 2, 0, 0, -1, 3});
  expect(kernels::matmul(at, b, {.trans_a = true}), {5, 7, 14, 13});
  expect(kernels::matmul(a, bt, {.trans_b = true}), {5, 7, 14, 13});
  expect(kernels::matmul(at, bt, {.trans_a = true, .trans_b = true}), {5, 7, 14, 13});
  const Tensor bias = floats({2}, {-10, 1}), residual = floats({2, 2}, {100, 200, 300, 400});
  expect(kernels::matmul(a, b, {.bias = bias, .residual = residual, .activation = kernels::Activation::relu}),
         {100, 208, 304, 414});
  expect(kernels::matmul(floats({2, 1, 2}, {1, 2, 3, 4}), floats({2, 2, 1}, {1, 1, 2, 2})), {3, 14});
}

TEST_F(References, Activations) {
  const Tensor x = floats({3}, {-1, 0.5, 2});
  expect(kernels::silu(x), {-0.26894142, 0.31122967, 1.76159416});
  expect(kernels::gelu(x), {-0.15865525, 0.34573123, 1.95449974});
  expect(kernels::gelu_tanh(x), {-0.15880801, 0.34571401, 1.95459769});
  expect(kernels::relu(x), {0, 0.5, 2});
  expect(kernels::swiglu(x, floats({3}, {2, 2, -1})), {-0.53788284, 0.62245933, -1.76159416});
  expect(kernels::add(x, kernels::constant(builder_, 0.25, {1})), {-0.75, 0.75, 2.25});
  expect(kernels::scale(x, -2), {2, -1, -4});
  // The same function in a matmul's epilogue.
  const Tensor one = floats({1, 1}, {1}), column = floats({3, 1}, {-1, 0.5, 2});
  expect(kernels::matmul(column, one, {.activation = kernels::Activation::gelu_tanh}),
         {-0.15880801, 0.34571401, 1.95459769});
  expect(kernels::matmul(column, one, {.activation = kernels::Activation::gelu}),
         {-0.15865525, 0.34573123, 1.95449974});
  expect(kernels::matmul(column, one, {.activation = kernels::Activation::silu}),
         {-0.26894142, 0.31122967, 1.76159416});
}

TEST_F(References, Norms) {
  const Tensor x = floats({1, 4}, {1, 2, 3, 4}), w = floats({4}, {1, 1, 2, 1}), b = floats({4}, {0, 0, 0, 1});
  expect(kernels::rms_norm(x, w, 1e-12), {0.36514837, 0.73029674, 2.19089023, 1.46059349});
  expect(kernels::layer_norm(x, w, b, 1e-12), {-1.34164079, -0.44721360, 0.89442719, 2.34164079});
}

TEST_F(References, RopePairsAndTurnsBack) {
  const Tensor x = floats({1, 2, 1, 4}, {1, 2, 3, 4, 1, 2, 3, 4});
  // Position 1: angle 1 for the first pair, 1/100 for the second.
  const double c = std::cos(1.0), s = std::sin(1.0), c2 = std::cos(0.01), s2 = std::sin(0.01);
  expect(kernels::rope(x, {.pairing = kernels::RopePairing::half}),
         {1, 2, 3, 4, c - 3 * s, 2 * c2 - 4 * s2, s + 3 * c, 2 * s2 + 4 * c2});
  expect(kernels::rope(x, {.pairing = kernels::RopePairing::interleaved}),
         {1, 2, 3, 4, c - 2 * s, s + 2 * c, 3 * c2 - 4 * s2, 3 * s2 + 4 * c2});
  expect(kernels::rope(x, {.dims = 2, .offset = 0}), {1, 2, 3, 4, c - 2 * s, s + 2 * c, 3, 4});
  const Tensor rotated = kernels::rope(x, {.offset = 77});
  kernels::Attrs attrs = program_.calls.back().attrs;
  attrs.set("inverse", true);
  expect(builder_.call1("rope", {rotated}, attrs), {1, 2, 3, 4, 1, 2, 3, 4}, 2e-6);
}

TEST_F(References, EmbeddingsAndLayouts) {
  const Tensor table = floats({3, 2}, {1, 2, 3, 4, 5, 6}), ids = integers({5}, {2, 0, -1, 3, 2});
  expect(kernels::embedding(table, ids), {5, 6, 1, 2, 0, 0, 0, 0, 5, 6});
  const Tensor dy = floats({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  expect(builder_.call1("embedding_grad", {ids, dy}, {{"rows", std::int64_t{3}}}), {3, 4, 0, 0, 10, 12});
  expect(builder_.call1("embedding_grad", {ids, dy, table}, {{"rows", std::int64_t{3}}, {"residual", true}}),
         {4, 6, 3, 4, 15, 18});
  expect(kernels::permute(table, {1, 0}), {1, 3, 5, 2, 4, 6});
  expect(kernels::reshape(table, {2, 3}), {1, 2, 3, 4, 5, 6});
  expect(kernels::reduce_sum(table, 1), {9, 12});
  expect(kernels::reduce_sum(table, 0), {21});
  expect(kernels::square_sum(table), {91});
  expect(kernels::stack({kernels::reduce_sum(table, 0), kernels::square_sum(table)}), {21, 91});
  const Tensor count = kernels::iota(builder_, 4);
  run(table);
  for (std::int32_t i = 0; i < 4; ++i) EXPECT_EQ(values_.at(count.id).as<std::int32_t>()[i], i);
}

TEST_F(References, CrossEntropy) {
  const Tensor logits = floats({3, 2}, {0, 0, 200, 0, 1, 2}), targets = integers({3}, {1, 1, -1});
  const kernels::CrossEntropy result = kernels::cross_entropy(logits, targets);
  expect(result.loss, {std::log(2.0), 200, 0});
  expect(result.valid, {1, 1, 0});
  const Tensor lse{&builder_, result.valid.id + 1};
  const Tensor dloss = floats({3}, {1, 2, 3});
  expect(builder_.call1("cross_entropy_grad", {logits, targets, lse, dloss}), {0.5, -0.5, 2, -2, 0, 0});
}

TEST_F(References, AdamWFirstStepMovesByTheRate) {
  const Tensor p = floats({2}, {1, -1}), g = floats({2}, {4, -0.5}), zero = floats({2}, {0, 0});
  const Tensor control = floats({4}, {0.1f, 0.5f, 1, 1}), skip = floats({4}, {0.1f, 0.5f, 0, 1});
  const kernels::AdamWResult step = kernels::adamw(p, g, zero, zero, control, {.weight_decay = 0.1});
  expect(step.parameter, {1 - 0.1 * (1 + 0.1), -1 + 0.1 * (1 + 0.1)});
  expect(step.m, {0.2, -0.025});
  expect(step.v, {0.05 * 4, 0.05 * 0.0625});
  const Tensor bad = floats({2}, {std::numeric_limits<float>::quiet_NaN(), 1});
  expect(kernels::adamw(p, bad, zero, zero, skip, {}).parameter, {1, -1});
}

// The definition, one query at a time.
TEST_F(References, AttentionByItsDefinition) {
  constexpr std::int64_t B = 2, S = 3, T = 5, H = 4, KV = 2, D = 3;
  for (bool causal : {false, true}) {
    const Tensor q = random({B, S, H, D}, 1), k = random({B, T, KV, D}, 2), v = random({B, T, KV, D}, 3);
    const std::vector<float> got = run(kernels::flash_attention(q, k, v, {.causal = causal, .scale = 0.7}));
    const std::vector<float> qs = run(q), ks = run(k), vs = run(v);
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t i = 0; i < S; ++i)
        for (std::int64_t h = 0; h < H; ++h)
          for (std::int64_t d = 0; d < D; ++d) {
            double sum = 0, weighted = 0;
            for (std::int64_t j = 0; j < T; ++j) {
              if (causal && j > i + T - S) continue;
              double dot = 0;
              const std::int64_t kv = ((b * T + j) * KV + h / 2) * D;
              for (std::int64_t e = 0; e < D; ++e)
                dot += static_cast<double>(qs[static_cast<std::size_t>(((b * S + i) * H + h) * D + e)]) *
                       ks[static_cast<std::size_t>(kv + e)];
              const double p = std::exp(0.7 * dot);
              sum += p;
              weighted += p * vs[static_cast<std::size_t>(kv + d)];
            }
            EXPECT_NEAR(got[static_cast<std::size_t>(((b * S + i) * H + h) * D + d)], weighted / sum, 1e-6);
          }
  }
}

}  // namespace
}  // namespace meshloom::tests
