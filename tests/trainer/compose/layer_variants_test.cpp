// Layers that replace others: gradients of whole models with them on every device, and the results that they
// must equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/gradient_check.h"

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
  return with("Stack", "HeterogeneousStack{overrides=[" + overrides + "]}");
}

layers::CausalLM::Config positioned(const std::string& positions) {
  layers::CausalLM::Config model = tiny_gpt2();
  layers::set(model, "decoder.positions", positions, classes());
  return model;
}

layers::CausalLM::Config biased(const std::string& bias) {
  layers::CausalLM::Config model =
      with("Causal", "MaskFunction{visible=\"k % 3 < 2 or k == q\" base=Causal{}}");
  layers::set(model, "decoder.stack.layer.attention.distance_bias", bias, classes());
  return model;
}

layers::CausalLM::Config chunked_regularized() {
  layers::CausalLM::Config model =
      with("CrossEntropy",
           "ChunkedLoss{chunk_size=7 base=RegularizedCrossEntropy{label_smoothing=0.1 z_loss=0.02}}");
  layers::set(model, "decoder.head", "SoftCap{base=Linear{} cap=2}", classes());
  return model;
}

// With a head as Granite's.
layers::CausalLM::Config normed_projections() {
  layers::CausalLM::Config model = tiny_llama();
  for (const char* name : {"q_proj", "k_proj"})
    layers::set(model, std::string("decoder.stack.layer.attention.") + name, "JointNormProjection{}",
                classes());
  layers::set(model, "decoder.head", "ScaledHead{divisor=3}", classes());
  return model;
}

const std::string kWindow = "LayerOverride{where=\"attention.mask\" with=SlidingWindow{window=2}";

const std::string kShare =
    "LayerOverride{where=attention with=CrossLayerAttention{num_heads=4 positions=RotaryPosition{}}";

const std::vector<std::pair<std::string, layers::CausalLM::Config>>& variants() {
  static const std::vector<std::pair<std::string, layers::CausalLM::Config>> all{
      {"varied_masks", varied(kWindow + " first=1 every=2}")},
      {"varied_layers", varied("LayerOverride{where=feed_forward with=MoE{hidden_dim=6 num_experts=3 "
                               "gating=TopK{k=3 regularizers=[]}} layers=[1]}")},
      {"shared_keys", varied(kShare + " first=1}")},
      {"sigmoid_gated", with("FeedForward", "SigmoidGated{base=FeedForward{hidden_dim=24}}")},
      {"rotary_linear", with("RotaryPosition", "LinearRotaryPosition{factor=4 rotary_dims=2}")},
      {"rotary_ntk", with("RotaryPosition", "NtkRotaryPosition{factor=4 pairing=interleaved}")},
      {"rotary_scaled", with("RotaryPosition", "Llama3RotaryPosition{theta=50 original_length=16}")},
      {"rotary_yarn",
       with("RotaryPosition", "YarnRotaryPosition{theta=50 factor=8 original_length=64 beta_fast=8}")},
      {"rotary_long", with("RotaryPosition",
                           "LongRotaryPosition{theta=50 short_factors=\"1 2.5\" long_factors=\"1 8\" "
                           "original_length=64 attention_factor=1.2}")},
      {"joint_norm", normed_projections()},
      {"sinusoidal", positioned("SinusoidalPosition{}")},
      {"sinusoidal_half", positioned("SinusoidalPosition{pairing=half theta=100}")},
      {"latent", with("Attention", "LatentAttention{kv_rank=6 head_dim=4 rotary_dim=2 value_dim=3}")},
      {"latent_queries",
       with("Attention",
            "LatentAttention{kv_rank=6 q_rank=5 head_dim=3 rotary_dim=4 mask=SlidingWindow{window=3}}")},
      {"mask_function",
       with("Causal", "MaskFunction{visible=\"(q - k) % 3 < 2 or k == 0\" base=SlidingWindow{window=4}}")},
      {"relative_bias", biased("RelativeBias{buckets=4 max_distance=5 init=Normal{std=0.5}}")},
      {"chunked_loss", with("CrossEntropy", "ChunkedLoss{chunk_size=4}")},  // 15 tokens
      {"chunked_regularized", chunked_regularized()}};
  return all;
}

class LayerVariants : public testing::TestWithParam<std::size_t> {};

TEST_P(LayerVariants, GradientsAgainstDifferences) {
  check_against_differences(variants()[GetParam()].second);
}

TEST_P(LayerVariants, DevicesAgree) {
  // Kernels take a while to compile on the others: for layers with kernels of their own.
  const std::set<std::string> everywhere{"rotary_scaled", "rotary_yarn",  "rotary_long",  "sinusoidal",
                                         "latent",        "chunked_loss", "relative_bias"};
  const auto& [name, model] = variants()[GetParam()];
  for (const std::string& id : computing_devices()) {
    if (!id.starts_with("cpu") && !everywhere.count(name)) continue;
    SCOPED_TRACE(id);
    check_device_agrees(model, id);
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
  for (const char* form :
       {"LinearRotaryPosition{}", "NtkRotaryPosition{}", "YarnRotaryPosition{original_length=64}",
        "Llama3RotaryPosition{theta=10000 factor=1 original_length=64}"})
    EXPECT_NEAR(loss(with("RotaryPosition", form)), plain, 1e-6 * plain) << form;
  EXPECT_NE(loss(with("RotaryPosition", "YarnRotaryPosition{original_length=64 attention_factor=1.1}")),
            plain);
  EXPECT_NE(loss(with("RotaryPosition", "LinearRotaryPosition{factor=2}")), plain);
}

TEST(LayerVariant, SinusoidsAreSinesAndCosines) {
  for (const std::string pairing : {"interleaved", "half"}) {
    layers::CausalLM::Config model = positioned("SinusoidalPosition{pairing=" + pairing + "}");
    layers::set(model, "decoder.stack.num_layers", "1", classes());
    const layers::Traced traced = layers::trace_logits(model, catalog(), 1, 6);
    const Differentiated d(model);
    Memory inputs = d.inputs;
    kernels::HostTensor tokens(traced.program.value(traced.tokens).type);  // all of token 0
    inputs["tokens"] = tokens;
    const std::vector<kernels::HostTensor> values = interpret(traced.program, catalog(), inputs);
    const float* embedding = inputs.at("decoder/embedding/weight").as<float>();
    bool found = false;
    for (std::size_t v = 0; v < values.size(); ++v) {
      if (traced.program.values[v].tag != "decoder.positions") continue;
      found = true;
      for (int s = 0; s < 6; ++s)
        for (int p = 0; p < 8; ++p) {
          const double angle = s * std::pow(10000.0, -p / 8.0);
          const int sine = pairing == "half" ? p : 2 * p, cosine = pairing == "half" ? p + 8 : 2 * p + 1;
          const float* row = values[v].as<float>() + s * 16;
          EXPECT_NEAR(row[sine], embedding[sine] + std::sin(angle), 1e-5);
          EXPECT_NEAR(row[cosine], embedding[cosine] + std::cos(angle), 1e-5);
        }
    }
    EXPECT_TRUE(found);
  }
}

// Keys and values of a small vector are those of an attention whose matrices are the products.
TEST(LayerVariant, LatentAttentionIsWhatItFactorises) {
  constexpr int kDim = 16, kRank = 6;
  const Differentiated plain(with("Attention", "Attention{num_kv_heads=4 positions=none scale=0.5}"));
  const Differentiated latent(
      with("Attention",
           "LatentAttention{kv_rank=6 head_dim=4 rotary_dim=2 positions=none scale=0.5 "
           "kv_norm=IdentityNorm{}}"));
  Memory whole = plain.inputs, parts = latent.inputs;
  for (auto& [path, value] : whole) {
    if (path.ends_with("/k_proj/weight") || path.ends_with("/v_proj/weight")) {
      const std::string above = path.substr(0, path.size() - std::string("k_proj/weight").size());
      const float* up = parts.at(path).as<float>();
      const float* down = parts.at(above + "kv_down/weight").as<float>();
      for (int o = 0; o < kDim; ++o)
        for (int i = 0; i < kDim; ++i) {
          double sum = 0;
          for (int r = 0; r < kRank; ++r) sum += static_cast<double>(up[o * kRank + r]) * down[r * kDim + i];
          value.as<float>()[o * kDim + i] = static_cast<float>(sum);
        }
      kernels::HostTensor& rotary = parts.at(above + "q_rotary_proj/weight");
      std::fill_n(rotary.as<float>(), rotary.type.elements(), 0.0f);
    } else {
      value = parts.at(path);
    }
  }
  const double want = plain.loss(whole);
  EXPECT_NEAR(latent.loss(parts), want, 1e-5 * want);
  EXPECT_GT(std::abs(latent.loss(latent.inputs) - want), 1e-4);  // the rotary part counts
}

// A layer whose keys and values are those of the layer before, because its input and matrices are, is that
// layer.
TEST(LayerVariant, SharedKeysAreTheKeysOfTheLayerBefore) {
  const std::string still =
      "HybridNormLayer{attention_post_norm=GemmaRMSNorm{} feed_forward_post_norm=GemmaRMSNorm{}}";
  layers::CausalLM::Config own = with("TransformerLayer", still);
  layers::CausalLM::Config shared = own;
  layers::replace(shared, "Stack", "HeterogeneousStack{overrides=[" + kShare + " first=1}]}", classes());
  const Differentiated a(own), b(shared);
  Memory inputs = a.inputs;
  for (auto& [path, value] : inputs) {
    // The first layer adds nothing to its input, and the second has its matrices.
    if (path.starts_with("decoder/stack/layer0/") && path.ends_with("post_norm/weight"))
      std::fill_n(value.as<float>(), value.type.elements(), -1.0f);
  }
  for (const char* name : {"attention/k_proj/weight", "attention/v_proj/weight", "attention_norm/weight"})
    inputs.at(std::string("decoder/stack/layer1/") + name) =
        inputs.at(std::string("decoder/stack/layer0/") + name);
  Memory fewer;
  for (const auto& [path, value] : b.inputs) fewer[path] = inputs.at(path);
  // The third layer, which would share layer 0's keys too, adds nothing.
  for (Memory* memory : {&inputs, &fewer})
    for (auto& [path, value] : *memory)
      if (path.starts_with("decoder/stack/layer2/") && path.ends_with("post_norm/weight"))
        std::fill_n(value.as<float>(), value.type.elements(), -1.0f);
  const double want = a.loss(inputs);
  EXPECT_NEAR(b.loss(fewer), want, 1e-6 * want);
}

TEST(LayerVariant, ASlicedLossIsTheLoss) {
  const double whole = loss(tiny_llama());
  for (const char* rows : {"1", "4", "7", "14", "15", "99"})
    EXPECT_NEAR(loss(with("CrossEntropy", std::string("ChunkedLoss{chunk_size=") + rows + "}")), whole,
                1e-6 * whole)
        << rows;
}

// 512 x 4096 scores and their gradients are never in memory as a whole, and the planned memory is what is
// used.
TEST(LayerVariant, ASlicedLossTakesLessMemory) {
  trainer::ComposeOptions options;
  options.batch = 8;
  options.sequence = 64;
  const auto peak = [&](const std::string& loss, const std::vector<trainer::RematRule>& remat = {}) {
    layers::CausalLM::Config model = layers::llama_config(
        {.vocab = 4096, .dim = 16, .layers = 2, .heads = 2, .kv_heads = 1, .ffn = 24, .tied = true});
    layers::set(model, "loss", loss, classes());
    options.remat = remat;
    Bench bench("cpu");
    bench.start(trainer::compose_training(model, adamw(), options, catalog(), bench.device->info()));
    bench.feed(random_batch(8, 64, 4096, 3));
    bench.set_rate(0);
    bench.session->run(trainer::Step::train);
    const std::vector<float> metrics = bench.read("metrics");
    return std::pair(bench.session->plan().peak_bytes, metrics[0]);
  };
  const auto [whole, loss] = peak("CrossEntropy{}");
  const auto [chunked, same] = peak("ChunkedLoss{chunk_size=64}");
  const auto [saved, again] =
      peak("ChunkedLoss{chunk_size=64}", {{"recompute\\..*", trainer::RematPolicy::save}});
  EXPECT_NEAR(same, loss, 1e-5 * loss);
  EXPECT_NEAR(again, loss, 1e-5 * loss);
  const std::int64_t scores = 512 * 4096 * 4;
  EXPECT_LT(chunked, whole - scores * 3 / 4);
  EXPECT_GT(saved, chunked + scores / 2);
}

TEST(LayerVariant, RefuseNonsense) {
  const auto says = [](auto make, const std::string& words) {
    try {
      layers::trace_loss(make(), catalog(), 1, 4);
      ADD_FAILURE() << "no error: " << words;
    } catch (const hal::Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
  };
  says([&] { return varied(kWindow + " layers=[3]}"); }, "must name layers from 0 to 2");
  says([&] { return varied(kWindow + " first=3}"); }, "must change a layer");
  says([&] { return varied(kWindow + " every=0}"); }, "LayerOverride.every must be at least 1; found 0");
  says([&] { return varied("LayerOverride{where=\"attention.msk\" with=Causal{}}"); },
       "must match at least one node");
  says([&] { return varied("LayerOverride{where=\"attention.mask\" with=RMSNorm{}}"); }, "must be a Mask");
  says([&] { return with("CrossEntropy", "ChunkedLoss{chunk_size=0}"); },
       "ChunkedLoss.chunk_size must be at least 1; found 0");
  says([&] { return varied(kShare + "}"); }, "an Attention must come before it");
  says([&] { return with("Attention", "CrossLayerAttention{num_heads=4}"); },
       "as the layers of a HeterogeneousStack are");
  says([&] { return varied("LayerOverride{where=attention with=CrossLayerAttention{num_heads=5} first=1}"); },
       "without a head_dim, the model's dimension must be a multiple of num_heads; found 16 and 5");
  says(
      [&] {
        return varied(
            "LayerOverride{where=attention with=CrossLayerAttention{num_heads=3 head_dim=4} first=1}");
      },
      "num_heads must be a multiple of the shared key heads, 2, and head_dim must be theirs, 4; found 3 and "
      "4");
  says([&] { return with("Attention", "LatentAttention{kv_rank=0 head_dim=4}"); },
       "LatentAttention.kv_rank must be at least 1; found 0");
  says([&] { return positioned("SinusoidalPosition{pairing=odd}"); },
       "SinusoidalPosition.pairing must be half or interleaved; found 'odd'");
  const auto rotary = [](const std::string& text) { return with("RotaryPosition", text); };
  says([&] { return rotary("LinearRotaryPosition{factor=0.5}"); },
       "LinearRotaryPosition.factor must be at least 1; found 0.5");
  says([&] { return rotary("Llama3RotaryPosition{original_length=0}"); },
       "Llama3RotaryPosition.original_length must be at least 1; found 0");
  says([&] { return rotary("Llama3RotaryPosition{original_length=8 low_frequency_factor=4}"); },
       "low_frequency_factor");
  says([&] { return rotary("YarnRotaryPosition{original_length=8 beta_fast=1}"); }, "beta_slow < beta_fast");
  says([&] { return rotary("YarnRotaryPosition{original_length=8 attention_factor=0}"); },
       "YarnRotaryPosition.attention_factor must be above 0; found 0");
}

}  // namespace
}  // namespace meshloom::tests
