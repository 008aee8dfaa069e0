// Every kind of mask and modifier of attention, forward and backward, against a plain implementation that
// writes out the whole matrix of what is visible.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/flash_attention/flash_attention.h"
#include "tests/kernels/interpret.h"

namespace meshloom::tests {
namespace {

using kernels::DType;
using kernels::FlashAttentionOptions;
using kernels::Tensor;
using Floats = std::vector<float>;
using Numbers = std::vector<double>;

constexpr std::int64_t B = 2, S = 5, T = 9, H = 4, KV = 2, D = 3, E = 4;

std::size_t at(std::int64_t a, std::int64_t b, std::int64_t n_b, std::int64_t c, std::int64_t n_c,
               std::int64_t d, std::int64_t n_d) {
  return static_cast<std::size_t>(((a * n_b + b) * n_c + c) * n_d + d);
}

// What the plain implementation is told of a call.
struct Plain {
  std::function<bool(std::int64_t b, std::int64_t i, std::int64_t j)> visible;
  std::function<double(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)> bias;
  double scale = 0.8, cap = 0;
  std::optional<Floats> sink;

  Numbers o, lse, dq, dk, dv, dsink;
  Numbers d_logits;  // (B, H, S, T)

  void run(const Floats& q, const Floats& k, const Floats& v, const Floats& d_o) {
    o.assign(B * S * H * E, 0);
    lse.assign(B * H * S, 0);
    dq.assign(B * S * H * D, 0);
    dk.assign(B * T * KV * D, 0);
    dv.assign(B * T * KV * E, 0);
    dsink.assign(H, 0);
    d_logits.assign(B * H * S * T, 0);
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t h = 0; h < H; ++h)
        for (std::int64_t i = 0; i < S; ++i) row(q, k, v, d_o, b, h, i);
  }

 private:
  void row(const Floats& q, const Floats& k, const Floats& v, const Floats& d_o, std::int64_t b,
           std::int64_t h, std::int64_t i) {
    const std::int64_t g = h / (H / KV);
    Numbers p(T, 0.0), softcap_grad(T, 1.0), dp(T, 0.0);
    double total = sink ? std::exp((*sink)[static_cast<std::size_t>(h)]) : 0.0;
    const double sunk = total;
    for (std::int64_t j = 0; j < T; ++j) {
      if (!visible(b, i, j)) continue;
      double x = 0;
      for (std::int64_t e = 0; e < D; ++e)
        x += scale * q[at(b, i, S, h, H, e, D)] * k[at(b, j, T, g, KV, e, D)];
      if (cap > 0) {
        const double y = std::tanh(x / cap);
        x = cap * y;
        softcap_grad[static_cast<std::size_t>(j)] = 1 - y * y;
      }
      if (bias) x += bias(b, h, i, j);
      total += p[static_cast<std::size_t>(j)] = std::exp(x);
    }
    lse[at(0, b, B, h, H, i, S)] = total > 0 ? std::log(total) : -std::numeric_limits<double>::infinity();
    if (total == 0) return;
    double mean = 0;  // of dp under p
    for (std::int64_t j = 0; j < T; ++j) {
      double& share = p[static_cast<std::size_t>(j)];
      share /= total;
      for (std::int64_t e = 0; e < E; ++e) {
        const std::size_t value = at(b, j, T, g, KV, e, E), out = at(b, i, S, h, H, e, E);
        o[out] += share * v[value];
        dv[value] += share * d_o[out];
        dp[static_cast<std::size_t>(j)] += static_cast<double>(d_o[out]) * v[value];
      }
      mean += share * dp[static_cast<std::size_t>(j)];
    }
    dsink[static_cast<std::size_t>(h)] -= sunk / total * mean;
    for (std::int64_t j = 0; j < T; ++j) {
      const auto w = static_cast<std::size_t>(j);
      d_logits[at(b, h, H, i, S, j, T)] = p[w] * (dp[w] - mean);
      const double dx = scale * p[w] * (dp[w] - mean) * softcap_grad[w];
      for (std::int64_t e = 0; e < D; ++e) {
        dq[at(b, i, S, h, H, e, D)] += dx * k[at(b, j, T, g, KV, e, D)];
        dk[at(b, j, T, g, KV, e, D)] += dx * q[at(b, i, S, h, H, e, D)];
      }
    }
  }
};

class AttentionMasks : public testing::Test {
 protected:
  void SetUp() override { kernels::add_contracts(catalog_); }

  Tensor give(kernels::TensorType type, const void* data) {
    const Tensor tensor =
        builder_.input("in" + std::to_string(program_.inputs.size()), type, kernels::Role::input);
    kernels::HostTensor host(type);
    std::memcpy(host.data.data(), data, host.data.size());
    values_.insert_or_assign(tensor.id, std::move(host));
    return tensor;
  }
  Tensor floats(kernels::Shape shape, const Floats& values) {
    return give({DType::f32, std::move(shape)}, values.data());
  }
  Tensor integers(kernels::Shape shape, const std::vector<std::int32_t>& values) {
    return give({DType::i32, std::move(shape)}, values.data());
  }
  static Floats random(std::int64_t count, std::uint64_t seed) {
    Floats values(static_cast<std::size_t>(count));
    kernels::fill_uniform({{DType::f32, {count}}, reinterpret_cast<std::byte*>(values.data())}, seed, -1, 1);
    return values;
  }

  void expect(Tensor got, const Numbers& want, const char* what) {
    ASSERT_TRUE(got) << what;
    const kernels::HostTensor& tensor = values_.at(got.id);
    ASSERT_EQ(tensor.type.elements(), static_cast<std::int64_t>(want.size())) << what;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (std::isinf(want[i]))
        EXPECT_EQ(tensor.as<float>()[i], want[i]) << what << " " << i;
      else
        EXPECT_NEAR(tensor.as<float>()[i], want[i], 2e-6) << what << " " << i;
    }
  }

  // The call with `options`, and its gradient, equal `plain`.
  void holds(FlashAttentionOptions options, Plain plain) {
    const Floats q = random(B * S * H * D, 1), k = random(B * T * KV * D, 2), v = random(B * T * KV * E, 3),
                 d_o = random(B * S * H * E, 4);
    options.scale = plain.scale;
    options.soft_cap = plain.cap;
    if (plain.sink) options.sink = floats({H}, *plain.sink);
    const Tensor o = kernels::flash_attention(floats({B, S, H, D}, q), floats({B, T, KV, D}, k),
                                              floats({B, T, KV, E}, v), options);
    const kernels::Call call = program_.calls.back();
    std::vector<Tensor> inputs, outputs;
    for (const kernels::ValueId id : call.inputs) inputs.push_back(builder_.tensor(id));
    for (const kernels::ValueId id : call.outputs) outputs.push_back(builder_.tensor(id));
    const Tensor cotangent = floats({B, S, H, E}, d_o);
    const std::vector<Tensor> gradients =
        catalog_.contract("flash_attention")
            .gradient({builder_, call, inputs, outputs, {cotangent, Tensor{}}});
    values_ = interpret(program_, catalog_, std::move(values_));
    plain.run(q, k, v, d_o);
    expect(o, plain.o, "o");
    expect(outputs[1], plain.lse, "lse");
    expect(gradients[0], plain.dq, "dq");
    expect(gradients[1], plain.dk, "dk");
    expect(gradients[2], plain.dv, "dv");
    for (std::size_t i = 3; i < inputs.size(); ++i)
      if (options.bias && inputs[i].id == options.bias.id)
        expect(gradients[i], folded(plain.d_logits, options.bias.type().shape), "dbias");
    if (!plain.sink) return;
    for (std::size_t i = 3; i < inputs.size(); ++i)
      if (inputs[i].id == options.sink.id) expect(gradients[i], plain.dsink, "dsink");
  }

  // (B, H, S, T) summed over the first two dimensions where `shape` has 1 there.
  static Numbers folded(const Numbers& full, const kernels::Shape& shape) {
    Numbers sums(static_cast<std::size_t>(shape[0] * shape[1] * S * T), 0.0);
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t h = 0; h < H; ++h)
        for (std::int64_t pair = 0; pair < S * T; ++pair)
          sums[at(0, shape[0] > 1 ? b : 0, B, shape[1] > 1 ? h : 0, shape[1], pair, S * T)] +=
              full[at(0, b, B, h, H, pair, S * T)];
    return sums;
  }

  static bool causal(std::int64_t, std::int64_t i, std::int64_t j) { return j <= i + T - S; }

  kernels::Catalog catalog_;
  kernels::Program program_;
  kernels::Builder builder_{catalog_, program_};
  Values values_;
};

TEST_F(AttentionMasks, Full) {
  holds({.causal = false}, {.visible = [](auto, auto, auto) { return true; }, .bias = {}, .sink = {}});
}

TEST_F(AttentionMasks, Causal) { holds({}, {.visible = causal, .bias = {}, .sink = {}}); }

TEST_F(AttentionMasks, SlidingWindow) {
  const auto seen = [](auto b, auto i, auto j) { return causal(b, i, j) && j > i + T - S - 3; };
  holds({.left = 2}, {.visible = seen, .bias = {}, .sink = {}});
}

TEST_F(AttentionMasks, WindowToBothSides) {
  const auto seen = [](auto, auto i, auto j) { return j >= i + T - S - 1 && j <= i + T - S + 2; };
  holds({.causal = false, .left = 1, .right = 2}, {.visible = seen, .bias = {}, .sink = {}});
}

TEST_F(AttentionMasks, Prefix) {
  const std::vector<std::int32_t> lengths{7, 0};
  const auto seen = [&](auto b, auto i, auto j) {
    return causal(b, i, j) || j < lengths[static_cast<std::size_t>(b)];
  };
  holds({.prefix = integers({B}, lengths)}, {.visible = seen, .bias = {}, .sink = {}});
}

TEST_F(AttentionMasks, SegmentsAndRowsThatSeeNothing) {
  const std::vector<std::int32_t> q{0, 0, 1, 7, 1, 2, 2, 2, 2, 0}, k{0, 0, 0, 0, 1, 1, 1, 1, 1,  //
                                                                     2, 0, 2, 0, 2, 0, 2, 0, 1};
  const auto seen = [&](auto b, auto i, auto j) {
    return causal(b, i, j) &&
           q[static_cast<std::size_t>(b * S + i)] == k[static_cast<std::size_t>(b * T + j)];
  };
  holds({.q_segments = integers({B, S}, q), .k_segments = integers({B, T}, k)},
        {.visible = seen, .bias = {}, .sink = {}});
}

TEST_F(AttentionMasks, StartsWithSlopes) {
  const std::vector<std::int32_t> starts{-2, 3};
  const Floats slopes{0.5f, 0.25f, 0.125f, 0};
  const auto position = [&](std::int64_t b, std::int64_t i) {
    return i + starts[static_cast<std::size_t>(b)];
  };
  holds({.query_offset = integers({B}, starts), .slopes = floats({H}, slopes)},
        {.visible = [&](auto b, auto i, auto j) { return j <= position(b, i); },
         .bias =
             [&](auto b, auto h, auto i, auto j) {
               return -slopes[static_cast<std::size_t>(h)] *
                      static_cast<double>(std::abs(position(b, i) - j));
             },
         .sink = {}});
}

TEST_F(AttentionMasks, SoftCap) { holds({}, {.visible = causal, .bias = {}, .cap = 0.7, .sink = {}}); }

TEST_F(AttentionMasks, Sink) { holds({}, {.visible = causal, .bias = {}, .sink = Floats{0.5f, -1, 2, 0}}); }

TEST_F(AttentionMasks, SinkOfRowsThatSeeNothing) {
  const std::vector<std::int32_t> starts{-3, -9};
  holds({.query_offset = integers({B}, starts)},
        {.visible = [&](auto b, auto i, auto j) { return j <= i + starts[static_cast<std::size_t>(b)]; },
         .bias = {},
         .sink = Floats{0.5f, -1, 2, 0}});
}

// A bias for all, per batch row, per head and for each of both, and what each of them learns.
TEST_F(AttentionMasks, Bias) {
  for (const kernels::Shape& shape : {kernels::Shape{1, 1, S, T}, {B, 1, S, T}, {1, H, S, T}, {B, H, S, T}}) {
    const Floats bias = random(shape[0] * shape[1] * S * T, 5);
    const auto of = [&](auto b, auto h, auto i, auto j) {
      return static_cast<double>(bias[at(shape[0] > 1 ? b : 0, shape[1] > 1 ? h : 0, shape[1], i, S, j, T)]);
    };
    holds({.bias = floats(shape, bias)}, {.visible = causal, .bias = of, .cap = 0.7, .sink = {}});
  }
}

TEST_F(AttentionMasks, Bits) {
  const auto set = [](std::int64_t b, std::int64_t i, std::int64_t j) {
    return (3 * i + 5 * j + b) % 4 < 2 && i != 3;
  };
  std::vector<std::int32_t> words;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t i = 0; i < S; ++i) {
      std::uint32_t word = 0xfffffe00;  // beyond the keys: nobody looks
      for (std::int64_t j = 0; j < T; ++j) word |= static_cast<std::uint32_t>(set(b, i, j)) << j;
      words.push_back(static_cast<std::int32_t>(word));
    }
  holds({.causal = false, .attention_bitmask = integers({B, 1, S, 1}, words)},
        {.visible = set, .bias = {}, .sink = {}});
  holds({.attention_bitmask = integers({B, 1, S, 1}, words)},
        {.visible = [&](auto b, auto i, auto j) { return causal(b, i, j) && set(b, i, j); },
         .bias = {},
         .sink = {}});
}

}  // namespace
}  // namespace meshloom::tests
