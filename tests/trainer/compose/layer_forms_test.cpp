// Layers that replace others: gradients of whole models with them, the results that they must equal, and what
// they must not change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/gradient_check.h"
#include "tests/trainer/compose/support.h"

namespace meshloom::tests {
namespace {

layers::ClassTable classes() {
  layers::ClassTable table;
  layers::add_layer_classes(table);
  return table;
}

// A Llama with every node of class `from` replaced.
layers::CausalLM::Config with(const std::string& from, const std::string& to) {
  layers::CausalLM::Config model = tiny_llama();
  layers::replace(model, from, to, classes());
  return model;
}

layers::CausalLM::Config capped(double cap) {
  layers::CausalLM::Config model = tiny_llama();
  layers::set(model, "decoder.head", "SoftCap{base=TiedHead{} cap=" + std::to_string(cap) + "}", classes());
  return model;
}

layers::CausalLM::Config scaled(const std::string& scale) {
  layers::CausalLM::Config model = tiny_llama();
  layers::set(model, "decoder.embedding", "ScaledEmbedding{scale=" + scale + "}", classes());
  return model;
}

layers::CausalLM::Config regularized(const std::string& fields) {
  layers::CausalLM::Config model = tiny_llama();
  layers::set(model, "loss", "RegularizedCrossEntropy{" + fields + "}", classes());
  return model;
}

std::vector<std::pair<std::string, layers::CausalLM::Config>> forms() {
  return {{"gemma_norm", with("RMSNorm", "GemmaRMSNorm{}")},
          {"post_norm", with("TransformerLayer", "PostNormLayer{}")},
          {"hybrid_norm", with("TransformerLayer", "HybridNormLayer{}")},
          {"scaled_residual", with("TransformerLayer", "ScaledResidualLayer{residual_scale=0.3}")},
          {"parallel", with("TransformerLayer", "ParallelLayer{}")},
          {"parallel_one_norm", with("TransformerLayer", "ParallelLayer{feed_forward_norm=none}")},
          {"soft_cap", capped(0.5)},
          {"scaled_embedding", scaled("none")},
          {"smoothing", regularized("label_smoothing=0.2")},
          {"z_loss", regularized("z_loss=0.05")},
          {"smoothing_and_z", regularized("label_smoothing=0.1 z_loss=0.02")}};
}

class LayerForms : public testing::TestWithParam<std::size_t> {};

TEST_P(LayerForms, GradientsAgainstDifferences) { check_against_differences(forms()[GetParam()].second); }

// The numbers of a parameter depend on its path and on nothing else.
TEST_P(LayerForms, OtherParametersStartAsTheyDo) {
  std::map<std::string, std::vector<float>> plain;
  const auto values = [](const layers::ParameterInfo& info) {
    std::vector<float> v(static_cast<std::size_t>(info.type.elements()));
    info.initialize(7, v.data());
    return v;
  };
  for (const layers::ParameterInfo& info : layers::trace_loss(tiny_llama(), catalog(), 2, 4).parameters)
    plain[info.path] = values(info);
  int same = 0;
  for (const layers::ParameterInfo& info :
       layers::trace_loss(forms()[GetParam()].second, catalog(), 2, 4).parameters)
    if (info.type.rank() == 2 && plain.count(info.path)) {
      EXPECT_EQ(values(info), plain.at(info.path)) << info.path;
      ++same;
    }
  EXPECT_EQ(same, 3 * 7 + 1);
}

// The device's kernels give the gradient that the references give.
TEST_P(LayerForms, TheDeviceAgrees) { check_device_agrees(forms()[GetParam()].second); }

INSTANTIATE_TEST_SUITE_P(All, LayerForms, testing::Range<std::size_t>(0, 10),
                         [](const auto& info) { return forms()[info.param].first; });

double loss(const layers::Config& model) {
  const Differentiated d(model);
  return d.loss(d.inputs);
}

TEST(LayerForm, WhatTheyMustEqual) {
  const std::string none = "attention_norm=IdentityNorm{} feed_forward_norm=IdentityNorm{}";
  const auto bare = [&](const std::string& name) {
    return loss(with("TransformerLayer", name + "{" + none + "}"));
  };
  EXPECT_EQ(bare("TransformerLayer"), bare("PostNormLayer"));
  EXPECT_NE(bare("TransformerLayer"), bare("ParallelLayer"));
  EXPECT_EQ(
      loss(with("TransformerLayer",
                "HybridNormLayer{attention_post_norm=IdentityNorm{} feed_forward_post_norm=IdentityNorm{}}")),
      loss(tiny_llama()));
  EXPECT_EQ(loss(scaled("1")), loss(tiny_llama()));
  EXPECT_EQ(loss(scaled("4")), loss(scaled("none")));  // dim = 16
  EXPECT_EQ(loss(regularized("")), loss(tiny_llama()));
  EXPECT_NEAR(loss(capped(1e4)), loss(tiny_llama()), 1e-4);
  EXPECT_NE(loss(with("TransformerLayer", "ParallelLayer{}")), loss(tiny_llama()));
}

TEST(LayerForm, LossIsItsFormula) {
  const double smoothing = 0.1, z = 0.02;
  const layers::CausalLM::Config model = regularized("label_smoothing=0.1 z_loss=0.02");
  const Differentiated d(model);
  const layers::Traced t = layers::trace_logits(model, catalog(), 3, 5);
  const kernels::HostTensor logits =
      interpret(t.program, catalog(), d.inputs)[static_cast<std::size_t>(t.logits)];
  const std::int32_t* targets = d.inputs.at("targets").as<std::int32_t>();
  double sum = 0, plain = 0;
  for (std::int64_t row = 0; row < 15; ++row) {
    if (targets[row] < 0) continue;
    const float* x = logits.as<float>() + row * 19;
    double total = 0, mean = 0;
    for (int v = 0; v < 19; ++v) total += std::exp(static_cast<double>(x[v]));
    for (int v = 0; v < 19; ++v) mean += x[v] / 19.0;
    const double lse = std::log(total);
    sum += (1 - smoothing) * (lse - x[targets[row]]) + smoothing * (lse - mean) + z * lse * lse;
    plain += lse - x[targets[row]];
  }
  EXPECT_NEAR(d.loss(d.inputs), sum, 1e-5 * sum);
  // The evaluation loss has no such terms.
  const layers::Traced judged = layers::trace_loss(model, catalog(), 3, 5, false);
  EXPECT_NEAR(interpret(judged.program, catalog(), d.inputs)[static_cast<std::size_t>(judged.loss_sum)]
                  .as<float>()[0],
              plain, 1e-5 * plain);
}

TEST(LayerForm, SoftCapHoldsLogitsWithin) {
  const layers::Traced t = layers::trace_logits(capped(0.01), catalog(), 3, 5);
  const Differentiated d(capped(0.01));
  const kernels::HostTensor logits =
      interpret(t.program, catalog(), d.inputs)[static_cast<std::size_t>(t.logits)];
  for (std::int64_t i = 0; i < logits.type.elements(); ++i) EXPECT_LE(std::abs(logits.as<float>()[i]), 0.01f);
}

TEST(LayerForm, RefuseNonsense) {
  const auto trace = [](const layers::Config& model) { layers::trace_loss(model, catalog(), 1, 4); };
  EXPECT_THROW(trace(capped(0)), hal::Error);
  EXPECT_THROW(trace(regularized("label_smoothing=1")), hal::Error);
  EXPECT_THROW(trace(regularized("z_loss=-1")), hal::Error);
}

}  // namespace
}  // namespace meshloom::tests
