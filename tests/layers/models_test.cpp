// Llama and GPT-2 as configs: sizes, text, what they declare.
#include "layers/models/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "layers/config/tree.h"
#include "layers/models/trace.h"

namespace meshloom::layers {
namespace {

using testing::ElementsAre;

LlamaShape tiny_llama() { return {.vocab = 11, .dim = 8, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 12}; }
Gpt2Shape tiny_gpt2() { return {.vocab = 11, .dim = 8, .layers = 2, .heads = 2, .context = 6}; }

std::int64_t parameters(const CausalLM::Config& config) {
  std::int64_t count = 0;
  config.build({})->visit([&](const Module& module) {
    for (const Parameter& p : module.parameters()) count += p.type.elements();
  });
  return count;
}

std::map<std::string, Parameter> by_path(const CausalLM::Config& config) {
  std::map<std::string, Parameter> found;
  config.build({})->visit([&](const Module& module) {
    for (const Parameter& p : module.parameters()) found[p.path] = p;
  });
  return found;
}

TEST(Models, ParameterCounts) {
  EXPECT_EQ(parameters(gpt2_config({})), 124'439'808);
  EXPECT_EQ(
      parameters(llama_config(
          {.vocab = 49152, .dim = 576, .layers = 30, .heads = 9, .kv_heads = 3, .ffn = 1536, .tied = true})),
      134'515'008);  // SmolLM2-135M
  EXPECT_EQ(parameters(llama_config(
                {.vocab = 32000, .dim = 4096, .layers = 32, .heads = 32, .kv_heads = 32, .ffn = 11008})),
            6'738'415'616);  // Llama 2 7B
}

TEST(Models, EveryClassRoundTripsThroughText) {
  ClassTable classes;
  add_layer_classes(classes);
  EXPECT_GE(classes.names().size(), 20u);
  for (const std::string& name : classes.names()) {
    const std::unique_ptr<Config> config = classes.make(name);
    EXPECT_EQ(config->class_name(), name);
    const std::string text = print(*config);
    EXPECT_EQ(print(*parse(text, classes, name)), text);
    EXPECT_EQ(print(*config->clone()), text);
  }
  for (const CausalLM::Config& model : {llama_config(tiny_llama()), gpt2_config(tiny_gpt2())}) {
    const std::unique_ptr<Config> back = parse(print(model), classes, "model");
    EXPECT_EQ(diff(model, *back), "");
    EXPECT_NO_THROW(check_complete(*back));
  }
}

TEST(Models, ParametersCarryAxesAndDecay) {
  const auto p = by_path(llama_config(tiny_llama()));
  const auto check = [&](const std::string& path, const kernels::Shape& shape,
                         std::vector<std::string> axes) {
    ASSERT_TRUE(p.count(path)) << path;
    EXPECT_EQ(p.at(path).type.shape, shape) << path;
    EXPECT_EQ(p.at(path).axes, axes) << path;
    EXPECT_EQ(p.at(path).decay, shape.size() == 2) << path;
  };
  const std::string layer = "decoder/stack/layer1/";
  check("decoder/embedding/weight", {11, 8}, {"vocab", "embed"});
  check(layer + "attention_norm/weight", {8}, {"embed"});
  check(layer + "attention/q_proj/weight", {8, 8}, {"heads", "embed"});
  check(layer + "attention/k_proj/weight", {4, 8}, {"kv_heads", "embed"});
  check(layer + "attention/v_proj/weight", {4, 8}, {"kv_heads", "embed"});
  check(layer + "attention/o_proj/weight", {8, 8}, {"embed", "heads"});
  check(layer + "feed_forward_norm/weight", {8}, {"embed"});
  check(layer + "feed_forward/gate_proj/weight", {12, 8}, {"mlp", "embed"});
  check(layer + "feed_forward/up_proj/weight", {12, 8}, {"mlp", "embed"});
  check(layer + "feed_forward/down_proj/weight", {8, 12}, {"embed", "mlp"});
  check("decoder/norm/weight", {8}, {"embed"});
  check("decoder/head/weight", {11, 8}, {"vocab", "embed"});
  EXPECT_EQ(p.size(), 2u * 9 + 3);
}

TEST(Models, ResidualProjectionsStartSmallerByTheDepth) {
  CausalLM::Config model = gpt2_config({.vocab = 16, .dim = 128, .layers = 8, .heads = 2, .context = 8});
  const auto p = by_path(model);
  const auto deviation = [&](const std::string& path) {
    std::vector<float> values(static_cast<std::size_t>(p.at(path).type.elements()));
    p.at(path).initialize(1, values.data());
    double sum = 0;
    for (const float v : values) sum += static_cast<double>(v) * v;
    return std::sqrt(sum / static_cast<double>(values.size()));
  };
  EXPECT_NEAR(deviation("decoder/stack/layer3/attention/q_proj/weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("decoder/stack/layer3/attention/o_proj/weight"), 0.005, 0.0003);
  EXPECT_NEAR(deviation("decoder/stack/layer3/feed_forward/down_proj/weight"), 0.005, 0.0003);
  EXPECT_EQ(deviation("decoder/stack/layer3/attention/o_proj/bias"), 0);
  EXPECT_EQ(deviation("decoder/stack/layer3/attention_norm/weight"), 1);
}

TEST(Models, SequenceLimitAndVocabulary) {
  EXPECT_EQ(max_sequence(gpt2_config(tiny_gpt2())), 6);
  EXPECT_EQ(max_sequence(llama_config(tiny_llama())), 0);
  EXPECT_EQ(vocabulary(llama_config(tiny_llama())), 11);
  EXPECT_THROW(vocabulary(Linear::Config{}), Error);
}

// A swap by one line of text, in no file of the modules around it.
TEST(Models, ReplaceSwapsModulesAndNothingElse) {
  ClassTable classes;
  add_layer_classes(classes);
  CausalLM::Config model = llama_config(tiny_llama());
  model.decoder->norm->dims = {};
  const CausalLM::Config before = model;
  const auto paths = replace(model, "RMSNorm", "LayerNorm{}", classes);
  EXPECT_THAT(paths, ElementsAre("decoder.stack.layer.attention_norm",
                                 "decoder.stack.layer.feed_forward_norm", "decoder.norm"));
  EXPECT_EQ(
      diff(before, model),
      "-decoder.stack.layer.attention_norm: RMSNorm\n+decoder.stack.layer.attention_norm: LayerNorm\n"
      "-decoder.stack.layer.feed_forward_norm: RMSNorm\n+decoder.stack.layer.feed_forward_norm: LayerNorm\n"
      "-decoder.norm: RMSNorm\n+decoder.norm: LayerNorm\n");
  EXPECT_EQ(parameters(model), parameters(before) + 5 * 8);
  set(model, "decoder.stack.layer.attention.positions", "none", classes);
  set(model, "decoder.positions", "LearnedPosition{max_length=5}", classes);
  EXPECT_EQ(max_sequence(model), 5);
  EXPECT_THROW(set(model, "decoder.positions", "RotaryPosition", classes), Error);
}

}  // namespace
}  // namespace meshloom::layers
