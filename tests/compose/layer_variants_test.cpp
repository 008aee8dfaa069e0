// Layers that stand where others stand: gradients of whole models with them, on every device, and what they must equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradient_check.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"

namespace meshloom::tests {
namespace {

const layers::ClassTable& classes() {
  static const layers::ClassTable table = [] {
    layers::ClassTable made;
    layers::add_layer_classes(made);
    return made;
  }();
  return table;
}

// A Llama with every node of class `from` replaced.
layers::CausalLM::Config with(const std::string& from, const std::string& to) {
  layers::CausalLM::Config model = tiny_llama();
  layers::replace(model, from, to, classes());
  return model;
}

layers::CausalLM::Config varied(const std::string& overrides) {
  return with("Stack", "VariedStack{overrides=[" + overrides + "]}");
}

const std::string kWindow = "LayerOverride{where=\"attention.mask\" with=SlidingWindow{window=2}";

const std::vector<std::pair<std::string, layers::CausalLM::Config>>& variants() {
  static const std::vector<std::pair<std::string, layers::CausalLM::Config>> all{
      {"varied_masks", varied(kWindow + " first=1 every=2}")},
      {"varied_layers", varied("LayerOverride{where=feed_forward with=MoE{hidden_dim=6 num_experts=3 gating=TopK{k=3 regularizers=[]}} layers=[1]}")},
      {"sigmoid_gated", with("FeedForward", "SigmoidGated{base=FeedForward{hidden_dim=24}}")},
      {"rotary_linear", with("RotaryPosition", "LinearRotaryPosition{factor=4 rotary_dims=2}")},
      {"rotary_ntk", with("RotaryPosition", "NtkRotaryPosition{factor=4 pairing=interleaved}")},
      {"rotary_scaled", with("RotaryPosition", "ScaledRotaryPosition{theta=50 original_length=16}")},
      {"rotary_yarn", with("RotaryPosition", "YarnRotaryPosition{theta=50 factor=8 original_length=64 beta_fast=8}")}};
  return all;
}

class LayerVariants : public testing::TestWithParam<std::size_t> {};

TEST_P(LayerVariants, GradientsAgainstDifferences) { check_against_differences(variants()[GetParam()].second); }

TEST_P(LayerVariants, DevicesAgree) {
  for (const std::string& id : computing_devices()) {
    SCOPED_TRACE(id);
    check_device_agrees(variants()[GetParam()].second, id);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LayerVariants, testing::Range<std::size_t>(0, variants().size()),
                         [](const auto& info) { return variants()[info.param].first; });

double loss(const layers::Config& model) {
  const Differentiated d(model);
  return d.loss(d.inputs);
}

TEST(LayerVariant, AStackOfEqualLayersIsAStack) {
  EXPECT_EQ(loss(varied("")), loss(tiny_llama()));
  EXPECT_EQ(loss(varied(kWindow + "}")), loss(with("Causal", "SlidingWindow{window=2}")));
  EXPECT_EQ(loss(varied(kWindow + " layers=[1]}")), loss(varied(kWindow + " first=1 every=2}")));  // of 3
  EXPECT_NE(loss(varied(kWindow + " first=1}")), loss(varied(kWindow + " layers=[1]}")));
  // The later of two counts.
  EXPECT_EQ(loss(varied(kWindow + "}, LayerOverride{where=\"**.mask\" with=Causal{}}")), loss(tiny_llama()));
}

TEST(LayerVariant, FormsOfRotaryPositionsWithoutAChange) {
  const double plain = loss(tiny_llama());
  for (const char* form : {"LinearRotaryPosition{}", "NtkRotaryPosition{}", "YarnRotaryPosition{original_length=64}",
                           "ScaledRotaryPosition{theta=10000 factor=1 original_length=64}"})
    EXPECT_NEAR(loss(with("RotaryPosition", form)), plain, 1e-6 * plain) << form;
  EXPECT_NE(loss(with("RotaryPosition", "YarnRotaryPosition{original_length=64 attention_factor=1.1}")), plain);
  EXPECT_NE(loss(with("RotaryPosition", "LinearRotaryPosition{factor=2}")), plain);
}

TEST(LayerVariant, RefuseNonsense) {
  const auto says = [](const layers::Config& model, const std::string& words) {
    try {
      layers::trace_loss(model, catalog(), 1, 4);
      ADD_FAILURE() << "no error: " << words;
    } catch (const hal::Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
  };
  says(varied(kWindow + " layers=[3]}"), "names layers from 0 to 2");
  says(varied(kWindow + " first=3}"), "changes a layer");
  says(varied(kWindow + " every=0}"), "positive every");
  says(varied("LayerOverride{where=\"attention.msk\" with=Causal{}}"), "must match at least one node");
  says(varied("LayerOverride{where=\"attention.mask\" with=RMSNorm{}}"), "takes a Mask");
  const auto rotary = [](const std::string& text) { return with("RotaryPosition", text); };
  says(rotary("LinearRotaryPosition{factor=0.5}"), "factor is at least 1");
  says(rotary("ScaledRotaryPosition{original_length=0}"), "original_length is positive");
  says(rotary("ScaledRotaryPosition{original_length=8 low_frequency_factor=4}"), "low_frequency_factor");
  says(rotary("YarnRotaryPosition{original_length=8 beta_fast=1}"), "beta_slow < beta_fast");
  says(rotary("YarnRotaryPosition{original_length=8 attention_factor=0}"), "attention_factor is positive");
}

}  // namespace
}  // namespace meshloom::tests
