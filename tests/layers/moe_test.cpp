// Mixtures of experts, run by the contracts' references: what they must equal, what they drop, what they report.
#include "layers/moe/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/elementwise/elementwise.h"
#include "kernels/iota/iota.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/attention/mask.h"
#include "layers/config/tree.h"
#include "layers/models/models.h"
#include "layers/models/trace.h"
#include "tests/layers/run_layer.h"

namespace meshloom::layers {
namespace {

using namespace tests;

Numbers repeated(const Numbers& once, std::int64_t times) {
  Numbers all;
  for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), once.begin(), once.end());
  return all;
}
Numbers summed(const Numbers& copies, std::size_t size) {
  Numbers sum(size, 0.0f);
  for (std::size_t i = 0; i < copies.size(); ++i) sum[i % size] += copies[i];
  return sum;
}

const std::vector<std::string> kDense{"FeedForward{hidden_dim=5}",
                                      "FeedForward{hidden_dim=9 activation=GeluTanh{} gate_proj=none "
                                      "up_proj=Linear{bias=true} down_proj=Linear{bias=true}}"};
const std::vector<std::string> kGatings{
    "TopK{k=2}", "TopK{k=3 score=SigmoidScore{}}",
    "TopK{k=4 regularizers=[LoadBalancingLoss{}, RouterZLoss{}, LossFreeBalancing{}]}"};

// The dense layer's text as an MoE's: the same fields, and more.
std::string moe(const std::string& dense, const std::string& more) {
  return "MoE" + dense.substr(dense.find('{'), dense.size() - dense.find('{') - 1) + " " + more + "}";
}
std::map<std::string, Numbers> copied(const std::string& dense, std::int64_t times) {
  std::map<std::string, Numbers> values;
  for (const auto& [path, gradient] : run_layer(dense, layer_input()).gradients)
    if (path != "x")
      values["experts/" + path] =
          repeated(random_numbers(path, static_cast<std::int64_t>(gradient.size()), 0.7f), times);
  return values;
}

TEST(MoE, OneExpertIsTheDenseLayer) {
  for (const std::string& dense : kDense) {
    const LayerResult want = run_layer(dense, layer_input());
    const LayerResult got = run_layer(moe(dense, "num_experts=1 gating=TopK{k=1 regularizers=[]}"),
                                      layer_input(), copied(dense, 1));
    expect_near(got.y, want.y);
    for (const auto& [path, gradient] : want.gradients)
      expect_near(got.gradients.at(path == "x" ? path : "experts/" + path), gradient);
    for (const float g : got.gradients.at("gating/router/weight")) EXPECT_EQ(g, 0);
  }
}

TEST(MoE, EqualExpertsAreTheDenseLayer) {
  for (const std::string& dense : kDense)
    for (const std::string& gating : kGatings) {
      SCOPED_TRACE(dense + " " + gating);
      const LayerResult want = run_layer(dense, layer_input());
      const LayerResult got =
          run_layer(moe(dense, "num_experts=5 gating=" + gating), layer_input(), copied(dense, 5));
      expect_near(got.y, want.y);
      for (const auto& [path, gradient] : want.gradients)
        if (path != "x") expect_near(summed(got.gradients.at("experts/" + path), gradient.size()), gradient);
    }
}

TEST(MoE, EnoughCapacityDropsNothing) {
  const std::string dense = kDense[0];
  const LayerResult free = run_layer(moe(dense, "num_experts=4 gating=TopK{}"), layer_input());
  const LayerResult roomy =
      run_layer(moe(dense, "num_experts=4 gating=TopK{capacity=Capacity{factor=2}}"), layer_input());
  EXPECT_EQ(roomy.y, free.y);
  EXPECT_EQ(roomy.gradients, free.gradients);
  EXPECT_EQ(roomy.summaries.at("gating/dropped"), 0);
}

TEST(MoE, PermutedTokensGivePermutedOutputs) {
  std::vector<std::int64_t> order(kTokens);
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + 5, order.end());
  std::swap(order[2], order[9]);
  const auto permuted = [&](const Numbers& rows) {
    Numbers result;
    for (const std::int64_t r : order)
      result.insert(result.end(), rows.begin() + r * kDim, rows.begin() + (r + 1) * kDim);
    return result;
  };
  for (const std::string& gating : kGatings) {
    const std::string text = moe(kDense[1], "num_experts=5 gating=" + gating);
    EXPECT_EQ(run_layer(text, permuted(layer_input())).y, permuted(run_layer(text, layer_input()).y));
  }
}

// Every token's first choice is expert 0 and its second expert 1: of 7 tokens per sequence floor(1.0 * 2 * 7 / 4) = 3 fit.
TEST(MoE, ForcedImbalanceDropsExactlyWhatDoesNotFit) {
  Numbers x = layer_input();
  for (std::int64_t r = 0; r < kTokens; ++r) x[r * kDim] = 1;
  Numbers router(4 * kDim, 0.0f);
  router[0] = 3, router[kDim] = 2;
  const std::map<std::string, Numbers> values{{"gating/router/weight", router}};
  const std::string text = moe(kDense[0], "num_experts=4 gating=TopK{capacity=Capacity{factor=1}}");
  const LayerResult got = run_layer(text, x, values),
                    free = run_layer(moe(kDense[0], "num_experts=4"), x, values);
  EXPECT_NEAR(got.summaries.at("gating/dropped"), 4.0 / 7, 1e-6);
  EXPECT_NEAR(got.summaries.at("gating/load_max"), 2, 1e-6);
  EXPECT_EQ(got.summaries.at("gating/load_min"), 0);
  for (std::int64_t r = 0; r < kTokens; ++r)
    for (std::int64_t c = r * kDim; c < (r + 1) * kDim; ++c)
      EXPECT_EQ(got.y[c], r % kSequence < 3 ? free.y[c] : 0) << r;
}

// Every token but the last chooses expert 1, then 0; the last 0, then 2. Two of a sequence fit: floor(0.5 * 2 * 7 / 3).
TEST(MoE, FirstChoicesGoBeforeSecondOnes) {
  Numbers x = layer_input(), router(3 * kDim, 0.0f);
  for (std::int64_t r = 0; r < kTokens; ++r) {
    const bool last = r % kSequence == kSequence - 1;
    x[r * kDim] = last ? -1.0f : 1.0f;
    x[r * kDim + 1] = last ? 3.0f : 1.0f;
  }
  router[1] = 1, router[kDim] = 2, router[2 * kDim] = -0.5f;
  const std::map<std::string, Numbers> values{{"gating/router/weight", router}};
  const auto text = [](const std::string& capacity) {
    return moe(kDense[0], "num_experts=3 gating=TopK{k=2 regularizers=[]" + capacity + "}");
  };
  const LayerResult got = run_layer(text(" capacity=Capacity{factor=0.5}"), x, values),
                    free = run_layer(text(""), x, values);
  EXPECT_NEAR(got.summaries.at("gating/dropped"), 1 - 5.0 / 14, 1e-6);
  for (std::int64_t r = 0; r < kTokens; ++r) {
    const std::int64_t s = r % kSequence;
    for (std::int64_t c = r * kDim; c < (r + 1) * kDim; ++c) {
      if (s == 0 || s == kSequence - 1)
        EXPECT_EQ(got.y[c], free.y[c]) << r;  // both choices
      else if (s == 1)
        EXPECT_TRUE(got.y[c] != 0 && got.y[c] != free.y[c]) << r;  // its first only
      else
        EXPECT_EQ(got.y[c], 0) << r;
    }
  }
}

// In plain loops: routing, weights, experts, the shared layer, the losses.
TEST(MoE, EqualsPlainLoops) {
  constexpr std::int64_t kExperts = 5, kHidden = 4, kK = 2;
  const Numbers x = layer_input(), router = random_numbers("gating/router/weight", kExperts * kDim, 0.7f);
  for (const bool sigmoid : {false, true})
    for (const bool normalize : {false, true}) {
      const std::string text =
          "MoE{hidden_dim=4 gate_proj=none activation=Relu{} num_experts=5 "
          "shared=FeedForward{hidden_dim=3 gate_proj=none activation=Relu{}} gating=TopK{k=2 "
          "weight_scale=2.5 regularizers=[LoadBalancingLoss{weight=0.5}, RouterZLoss{weight=0.25}] score=" +
          std::string(sigmoid ? "SigmoidScore{}" : "SoftmaxScore{}") +
          " normalize=" + (normalize ? "true" : "false") + "}}";
      SCOPED_TRACE(text);
      const LayerResult got = run_layer(text, x);
      const auto mlp = [&](const std::string& name, std::int64_t e, std::int64_t experts, std::int64_t hidden,
                           const float* row, double weight, std::vector<double>& into) {
        const Numbers up = random_numbers(name + "/up_proj/weight", experts * hidden * kDim, 0.7f),
                      down = random_numbers(name + "/down_proj/weight", experts * hidden * kDim, 0.7f);
        for (std::int64_t h = 0; h < hidden; ++h) {
          double sum = 0;
          for (std::int64_t i = 0; i < kDim; ++i)
            sum += static_cast<double>(up[(e * hidden + h) * kDim + i]) * row[i];
          for (std::int64_t i = 0; i < kDim; ++i)
            into[i] += weight * std::max(sum, 0.0) * down[(e * kDim + i) * hidden + h];
        }
      };
      std::vector<double> load(kExperts, 0), mean(kExperts, 0);
      double z = 0;
      Numbers want;
      for (std::int64_t r = 0; r < kTokens; ++r) {
        const float* row = x.data() + r * kDim;
        std::vector<double> logit(kExperts, 0), score(kExperts);
        double total = 0, all = 0;
        for (std::int64_t e = 0; e < kExperts; ++e) {
          for (std::int64_t i = 0; i < kDim; ++i)
            logit[e] += static_cast<double>(router[e * kDim + i]) * row[i];
          total += std::exp(logit[e]);
        }
        for (std::int64_t e = 0; e < kExperts; ++e)
          all += score[e] = sigmoid ? 1 / (1 + std::exp(-logit[e])) : std::exp(logit[e]) / total;
        z += std::pow(std::log(total), 2) / kTokens;
        for (std::int64_t e = 0; e < kExperts; ++e) mean[e] += score[e] / all / kTokens;
        std::vector<std::int64_t> order(kExperts);
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](auto a, auto b) { return logit[a] > logit[b]; });
        std::vector<double> y(kDim, 0);
        const double chosen = normalize ? score[order[0]] + score[order[1]] : 1;
        for (std::int64_t j = 0; j < kK; ++j) {
          ++load[order[j]];
          mlp("experts", order[j], kExperts, kHidden, row, 2.5 * score[order[j]] / chosen, y);
        }
        mlp("shared", 0, 1, 3, row, 1, y);
        want.insert(want.end(), y.begin(), y.end());
      }
      expect_near(got.y, want);
      double balance = 0;
      for (std::int64_t e = 0; e < kExperts; ++e) balance += load[e] / kTokens * mean[e] * kExperts / kK;
      EXPECT_NEAR(got.summaries.at("gating/regularizer0/loss"), balance, kTolerance * balance);
      EXPECT_NEAR(got.summaries.at("gating/regularizer1/loss"), z, kTolerance * z);
      EXPECT_NEAR(got.aux, 0.5 * balance + 0.25 * z, kTolerance);
    }
}

// What the router learns: the auxiliary losses and the task, by differences.
TEST(MoE, TheRoutersGradientEqualsDifferences) {
  for (const std::string& gating :
       {std::string("TopK{k=2 regularizers=[LoadBalancingLoss{weight=2}, RouterZLoss{weight=0.5}]}"),
        std::string(
            "TopK{k=1 score=SigmoidScore{} normalize=false regularizers=[LoadBalancingLoss{weight=2}]}")}) {
    const std::string text = moe(kDense[0], "num_experts=4 gating=" + gating);
    const Numbers weight = random_numbers("gating/router/weight", 4 * kDim, 0.7f), x = layer_input(),
                  cotangent = random_numbers("cotangent", kTokens * kDim, 1);
    const auto loss = [&](std::size_t i, float step) {
      Numbers moved = weight;
      moved[i] += step;
      const LayerResult r = run_layer(text, x, {{"gating/router/weight", moved}});
      double sum = r.aux;
      for (std::size_t j = 0; j < r.y.size(); ++j) sum += static_cast<double>(r.y[j]) * cotangent[j];
      return sum;
    };
    const Numbers gradient = run_layer(text, x).gradients.at("gating/router/weight");
    for (std::size_t i = 0; i < weight.size(); i += 5) {
      const double h = 0x1p-9;  // a routing that flips within it would show as a large difference
      const double want = (loss(i, static_cast<float>(h)) - loss(i, static_cast<float>(-h))) / (2 * h);
      EXPECT_NEAR(gradient[i], want, 2e-3 * std::max(1.0, std::abs(want))) << i;
    }
  }
}

TEST(MoE, BiasBalanceMovesChoicesAndNotWeights) {
  const std::string text = moe(kDense[0],
                               "num_experts=4 gating=TopK{k=1 normalize=false score=SigmoidScore{} "
                               "regularizers=[LossFreeBalancing{rate=0.5}]}");
  const std::string bias = "gating/regularizer0/bias";
  const LayerResult even = run_layer(text, layer_input());
  ASSERT_EQ(even.updates.at(bias).size(), 4u);
  // A bias that outweighs every score sends all tokens to expert 2, with its own score as the weight.
  const LayerResult forced = run_layer(text, layer_input(), {{bias, {0, 0, 10, 0}}});
  EXPECT_EQ(forced.summaries.at("gating/load_max"), 4);
  EXPECT_EQ(forced.updates.at(bias), (Numbers{0.5, 0.5, 9.5, 0.5}));
  const LayerResult again = run_layer(text, layer_input(), {{bias, {0, 0, 20, 0}}});
  EXPECT_EQ(again.y, forced.y);  // however large
  EXPECT_EQ(run_layer(text, layer_input(), {{bias, {0, 0, 10, 0}}}, false).updates.size(),
            0u);  // only training moves it
}

// Rows of padding, whatever they hold, against a batch that has none.
TEST(MoE, PaddingGoesNowhereAndCountsNowhere) {
  const std::vector<std::int32_t> segments{0, 1, 1, 2, 2, 2, 0, 1, 1, 0, 0, 0, 0, 0};
  const auto tokens_of = [&](const Numbers& rows) {
    Numbers result;
    for (std::int64_t r = 0; r < kTokens; ++r)
      if (segments[static_cast<std::size_t>(r)] != 0)
        result.insert(result.end(), rows.begin() + r * kDim, rows.begin() + (r + 1) * kDim);
    return result;
  };
  const Numbers x = layer_input(), cotangent = random_numbers("cotangent", kTokens * kDim, 1);
  Numbers other = x;
  for (std::int64_t i = 0; i < kTokens * kDim; ++i)
    if (segments[static_cast<std::size_t>(i / kDim)] == 0) other[static_cast<std::size_t>(i)] *= -30;
  for (const std::string& gating :
       {kGatings[0], kGatings[1], kGatings[2],
        std::string("TopK{k=1 normalize=false regularizers=[RouterZLoss{}]}"),
        std::string("TopK{k=2 capacity=Capacity{factor=9} regularizers=[LoadBalancingLoss{weight=3}, "
                    "LossFreeBalancing{rate=0.5}]}")}) {
    SCOPED_TRACE(gating);
    const std::string text = moe(kDense[1], "num_experts=5 gating=" + gating);
    const LayerResult want = run_layer(text, tokens_of(x), {{"cotangent", tokens_of(cotangent)}});
    for (const Numbers& rows : {x, other}) {
      const LayerResult got =
          run_layer(text, rows, {{"cotangent", cotangent}}, true, layer_classes(), segments);
      expect_near(tokens_of(got.y), want.y);
      for (std::int64_t i = 0; i < kTokens * kDim; ++i) {
        if (segments[static_cast<std::size_t>(i / kDim)] != 0) continue;
        EXPECT_EQ(got.y[static_cast<std::size_t>(i)], 0) << i;
      }
      EXPECT_NEAR(got.aux, want.aux, kTolerance * std::max(1.0, want.aux));
      ASSERT_EQ(got.summaries.size(), want.summaries.size());
      for (const auto& [path, value] : want.summaries)
        EXPECT_NEAR(got.summaries.at(path), value, kTolerance * std::max(1.0, std::abs(value))) << path;
      for (const auto& [path, value] : want.updates) EXPECT_EQ(got.updates.at(path), value) << path;
      for (const auto& [path, gradient] : want.gradients) {
        SCOPED_TRACE(path);
        expect_near(path == "x" ? tokens_of(got.gradients.at(path)) : got.gradients.at(path), gradient);
      }
    }
    // The checker sees a difference where padding is not known.
    EXPECT_GT(std::abs(run_layer(text, other).aux - want.aux), 1e-3 * want.aux);
  }
}

// As ForcedImbalance, with padding in front and between: the first three tokens of a sequence fit, wherever they are.
TEST(MoE, PaddingTakesUpNoCapacity) {
  const std::vector<std::int32_t> segments{0, 0, 1, 0, 1, 2, 2, 0, 0, 0, 0, 0, 1, 1};
  Numbers x = layer_input(), router(4 * kDim, 0.0f);
  for (std::int64_t r = 0; r < kTokens; ++r) x[r * kDim] = 1;
  router[0] = 3, router[kDim] = 2;
  const std::map<std::string, Numbers> values{{"gating/router/weight", router}};
  const std::string text = moe(kDense[0], "num_experts=4 gating=TopK{capacity=Capacity{factor=1}}");
  const LayerResult got = run_layer(text, x, values, true, layer_classes(), segments),
                    free = run_layer(moe(kDense[0], "num_experts=4"), x, values);
  const std::vector<std::int64_t> kept{2, 4, 5, 12, 13};
  EXPECT_NEAR(got.summaries.at("gating/dropped"), 1.0 / 6, 1e-6);
  for (std::int64_t r = 0; r < kTokens; ++r)
    for (std::int64_t c = r * kDim; c < (r + 1) * kDim; ++c)
      EXPECT_EQ(got.y[c], std::count(kept.begin(), kept.end(), r) ? free.y[c] : 0) << r;
}

TEST(MoE, NothingButPaddingIsNoNumbersButZeros) {
  const std::string text =
      moe(kDense[0],
          "num_experts=4 gating=TopK{k=2 capacity=Capacity{} regularizers=[LoadBalancingLoss{}, "
          "RouterZLoss{}, LossFreeBalancing{}]}");
  const LayerResult got =
      run_layer(text, layer_input(), {}, true, layer_classes(), std::vector<std::int32_t>(kTokens, 0));
  EXPECT_EQ(got.aux, 0);
  for (const float y : got.y) EXPECT_EQ(y, 0);
  for (const auto& [path, gradient] : got.gradients)
    for (const float g : gradient) EXPECT_EQ(g, 0) << path;
  EXPECT_EQ(got.updates.at("gating/regularizer2/bias"), Numbers(4, 0.0f));
}

// A gating that no file of the layers knows: token n goes to expert n, as long as there are any.
struct Queue : Gating {
  struct Config : ConfigOf<Config, Gating::Config> {
    static constexpr std::string_view kName = "Queue";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override {
      return std::make_unique<Queue>(place);
    }
  };
  explicit Queue(const Place& place) : Gating(place) {}
  Choice forward(Context& ctx, Tensor x) override {
    const std::int64_t rows = x.dim(0);
    return {kernels::reshape(kernels::iota(ctx.builder(), rows), {rows, 1}),
            kernels::constant(ctx.builder(), 1, {rows, 1})};
  }
};

TEST(MoE, AGatingOfTheUsersOwnPlugsIn) {
  ClassTable table;
  add_layer_classes(table);
  table.add<Queue::Config>();
  const LayerResult got = run_layer(moe(kDense[0], "num_experts=9 gating=Queue{}"), layer_input(),
                                    copied(kDense[0], 9), true, table);
  const LayerResult dense = run_layer(kDense[0], layer_input());
  for (std::int64_t r = 0; r < kTokens; ++r)  // ids 9 and up are none of the experts: dropped
    for (std::int64_t c = r * kDim; c < (r + 1) * kDim; ++c)
      EXPECT_NEAR(got.y[c], r < 9 ? dense.y[c] : 0, kTolerance * 10) << r;
}

TEST(MoE, SaysWhatIsWrong) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      run_layer(text, layer_input());
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("MoE{hidden_dim=4 num_experts=2 gating=TopK{k=3}}"),
            "gating: k must be from 1 to the number of experts, 2; found 3");
  EXPECT_THAT(message("MoE{hidden_dim=4 num_experts=2 gating=TopK{k=1}}"),
              testing::HasSubstr("set normalize=false"));
  EXPECT_THAT(message("MoE{hidden_dim=4 num_experts=0}"),
              testing::HasSubstr("MoE.num_experts must be at least 1; found 0"));
  EXPECT_THAT(message("MoE{hidden_dim=4 num_experts=4 gating=none}"),
              testing::HasSubstr("child 'gating' must not be none"));
  EXPECT_THAT(message("MoE{hidden_dim=4 num_experts=4 up_proj=QKNormProjection{}}"),
              testing::HasSubstr("must be below an attention"));
}

TEST(MoE, ParametersCarryTheExpertAxisAndDecayAsTheDenseOnes) {
  CausalLM::Config model = gpt2_config({.vocab = 11, .dim = 8, .layers = 2, .heads = 2, .context = 6});
  replace(model, "FeedForward", "MoE{num_experts=4}", layer_classes());
  std::map<std::string, Parameter> found;
  model.build({})->visit([&](const Module& module) {
    for (const Parameter& p : module.parameters()) found[p.path] = p;
  });
  const std::string layer = "decoder/stack/layer1/feed_forward/";
  const auto check = [&](const std::string& path, const kernels::Shape& shape,
                         const std::vector<std::string>& axes, bool decay) {
    ASSERT_TRUE(found.count(layer + path)) << path;
    EXPECT_EQ(found[layer + path].type.shape, shape);
    EXPECT_EQ(found[layer + path].axes, axes);
    EXPECT_EQ(found[layer + path].decay, decay);
  };
  check("gating/router/weight", {4, 8}, {"", "embed"}, true);
  check("experts/up_proj/weight", {4, 32, 8}, {"expert", "mlp", "embed"}, true);
  check("experts/up_proj/bias", {4, 32}, {"expert", "mlp"}, false);
  check("experts/down_proj/weight", {4, 8, 32}, {"expert", "embed", "mlp"}, true);
}

}  // namespace
}  // namespace meshloom::layers
