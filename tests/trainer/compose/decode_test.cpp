// Programs that compute new tokens beside caches, against the whole forward pass of every sequence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>

#include "hal/math.h"
#include "layers/cache/kv_cache.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/memory/memory.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kSequences = 3, kLength = 12, kPageSize = 5, kVocabulary = 19;

const layers::ClassTable& classes() {
  static const layers::ClassTable table = [] {
    layers::ClassTable made;
    layers::add_layer_classes(made);
    return made;
  }();
  return table;
}

layers::CausalLM::Config with(const std::string& from, const std::string& to,
                              layers::CausalLM::Config model = tiny_llama()) {
  layers::replace(model, from, to, classes());
  return model;
}

layers::CausalLM::Config set(const std::string& field, const std::string& value,
                             layers::CausalLM::Config model = tiny_llama()) {
  layers::set(model, field, value, classes());
  return model;
}

layers::CausalLM::Config latent(const std::string& cache) {
  return with("PagedCache", cache,
              with("Attention", "LatentAttention{kv_rank=6 head_dim=4 rotary_dim=2 value_dim=3}"));
}

const std::vector<std::pair<std::string, layers::CausalLM::Config>>& models() {
  static const std::string kAttention = "decoder.stack.layer.attention.";
  static const std::vector<std::pair<std::string, layers::CausalLM::Config>> all{
      {"llama", tiny_llama()},
      {"gpt2", tiny_gpt2()},
      {"experts", of_experts(tiny_llama())},
      {"experts_with_capacity",
       with("FeedForward",
            "MoE{num_experts=3 gating=TopK{k=2 capacity=Capacity{factor=50} regularizers=[]}}")},
      {"window", with("Causal", "SlidingWindow{window=4}")},
      {"soft_cap_and_sink", set(kAttention + "sink", "Normal{std=1}", set(kAttention + "soft_cap", "0.5"))},
      {"alibi", set(kAttention + "positions", "none", set(kAttention + "distance_bias", "Alibi{}"))},
      {"sinusoidal", set("decoder.positions", "SinusoidalPosition{}", tiny_gpt2())},
      {"interleaved", with("RotaryPosition", "RotaryPosition{pairing=interleaved rotary_dims=2}")},
      {"yarn",
       with("RotaryPosition", "YarnRotaryPosition{theta=50 factor=8 original_length=64 beta_fast=8}")},
      {"latent", with("Attention", "LatentAttention{kv_rank=6 head_dim=4 rotary_dim=2 value_dim=3}")},
      {"latents", latent("LatentCache{}")},
      {"latents_in_f16", latent("LatentCache{codec=Plain{dtype=f16}}")},
      {"latents_in_int8", latent("LatentCache{codec=Int8Rows{}}")},
      {"latents_of_a_window_with_biases", set("decoder.stack.layer.attention.v_proj", "Linear{bias=true}",
                                              set("decoder.stack.layer.attention.k_proj", "Linear{bias=true}",
                                                  set("decoder.stack.layer.attention.mask",
                                                      "SlidingWindow{window=4}", latent("LatentCache{}"))))},
      {"shared_keys",
       with(
           "Stack",
           "HeterogeneousStack{overrides=[LayerOverride{where=attention with=CrossLayerAttention{num_heads=4 "
           "positions=RotaryPosition{}} first=1}]}")},
      {"cache_in_f16", with("PagedCache", "PagedCache{codec=Plain{dtype=f16}}")},
      {"cache_in_int8", with("PagedCache", "PagedCache{codec=Int8Rows{}}")},
      {"contiguous", with("PagedCache", "ContiguousCache{}")},
      {"ring", with("PagedCache", "WindowCache{}", with("Causal", "SlidingWindow{window=2}"))},
      {"rings_and_pages",
       with("Stack",
            "HeterogeneousStack{overrides=[LayerOverride{where=attention.mask with=SlidingWindow{window=2} "
            "every=2}, LayerOverride{where=attention.cache with=WindowCache{} every=2}]}")}};
  return all;
}

trainer::ComposeOptions decode_options(kernels::DType dtype = kernels::DType::f32) {
  trainer::ComposeOptions options;
  options.dtype = dtype;
  options.logits_batch = 1;
  options.logits_sequence = kLength;
  options.decode = {.tokens = {1, 4, 9},
                    .sequences = kSequences,
                    .rows = kSequences,
                    .length = kLength,
                    .page_size = kPageSize};
  return options;
}

using Ids = std::vector<std::int32_t>;

class Decoding {
 public:
  Decoding(const layers::Config& model, const std::string& device, const trainer::ComposeOptions& options)
      : bench_(device), random_(7) {
    bench_.start(trainer::compose_inference(model, options, catalog(), bench_.device->info()));
    for (std::int64_t r = 0; r < kSequences; ++r)
      texts_.push_back(random_batch(1, kLength, kVocabulary, r + 1).tokens);
    // The pages of the sequences lie mixed in the pool.
    const auto pages = bench_.session->plan().persistent_types.at("decode/1/page_table").elements();
    pages_.resize(static_cast<std::size_t>(pages));
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), random_);
    std::iota(ids_.begin(), ids_.end(), 0);
    std::shuffle(ids_.begin(), ids_.end(), random_);
  }

  // The logits of each token of a text by one forward pass, (kLength, kVocabulary).
  std::vector<float> whole(std::int64_t r) {
    write("logits/tokens", texts_[static_cast<std::size_t>(r)]);
    bench_.session->run(trainer::Step::logits);
    return bench_.read("logits");
  }

  // Runs the next counts[r] tokens of each sequence in the program of `size` tokens, and returns the logits of the last token
  // of each that has any.
  std::vector<float> step(std::int64_t size, const std::vector<std::int64_t>& counts) {
    Ids tokens, positions, segments, slots, rows, starts{0}, lengths;
    std::map<std::int64_t, Ids> of_sequences;  // the inputs sequence_slots
    for (const std::int64_t cached : bench_.session->plan().cached_rows) of_sequences[cached];
    for (std::size_t r = 0; r < counts.size(); ++r) {
      for (std::int64_t i = 0; i < counts[r]; ++i, ++done_[r]) {
        tokens.push_back(texts_[r][static_cast<std::size_t>(done_[r])]);
        positions.push_back(static_cast<std::int32_t>(done_[r]));
        segments.push_back(1);
        const auto page = static_cast<std::size_t>(r) * pages_.size() / kSequences +
                          static_cast<std::size_t>(done_[r] / kPageSize);
        slots.push_back(static_cast<std::int32_t>(pages_[page] * kPageSize + done_[r] % kPageSize));
        for (auto& [cached, own] : of_sequences)
          own.push_back(static_cast<std::int32_t>(ids_[r] * cached + done_[r] % cached));
      }
      if (counts[r] > 0) rows.push_back(static_cast<std::int32_t>(tokens.size()) - 1);
      starts.push_back(static_cast<std::int32_t>(tokens.size()));
      lengths.push_back(static_cast<std::int32_t>(done_[r]));
    }
    const std::size_t wanted = rows.size();
    const auto n = static_cast<std::size_t>(size);
    tokens.resize(n, 0), positions.resize(n, 0), segments.resize(n, 0), slots.resize(n, -1);
    rows.resize(static_cast<std::size_t>(std::min(size, kSequences)), 0);
    const std::string name = "decode/" + std::to_string(size) + "/";
    write(name + "tokens", tokens), write(name + "positions", positions), write(name + "segments", segments);
    write(name + "slots", slots), write(name + "rows", rows), write(name + "query_starts", starts);
    write(name + "lengths", lengths), write(name + "page_table", pages_);
    write(name + "sequence_ids", ids_);
    for (auto& [cached, own] : of_sequences) {
      own.resize(n, -1);
      write(name + "sequence_slots/" + std::to_string(cached), own);
    }
    bench_.session->run({trainer::Step::decode, static_cast<int>(size)});
    std::vector<float> logits = bench_.read(name + "logits");
    logits.resize(wanted * kVocabulary);
    return logits;
  }

  std::int64_t done(std::int64_t r) const { return done_[static_cast<std::size_t>(r)]; }
  Bench& bench() { return bench_; }

 private:
  void write(const std::string& name, const Ids& ids) {
    bench_.session->write(name, std::as_bytes(std::span(ids)));
  }

  Bench bench_;
  std::mt19937_64 random_;
  std::vector<Ids> texts_;
  Ids pages_, ids_ = Ids(kSequences);
  std::array<std::int64_t, kSequences> done_{};
};

// Parts of prompts, single tokens and mixtures of both.
void check_steps(const layers::Config& model, const std::string& device,
                 const trainer::ComposeOptions& options, double tolerance) {
  Decoding decoding(model, device, options);
  const std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> steps{
      {9, {6, 0, 3}}, {4, {0, 4, 0}}, {9, {1, 1, 5}}, {1, {1, 0, 0}},
      {4, {1, 1, 1}}, {9, {3, 5, 0}}, {4, {0, 1, 3}}};
  for (const auto& [size, counts] : steps) {
    const std::vector<float> logits = decoding.step(size, counts);
    std::size_t at = 0;
    for (std::int64_t r = 0; r < kSequences; ++r) {
      if (counts[static_cast<std::size_t>(r)] == 0) continue;
      const std::vector<float> whole = decoding.whole(r);
      for (std::int64_t v = 0; v < kVocabulary; ++v, ++at) {
        const float expected = whole[static_cast<std::size_t>((decoding.done(r) - 1) * kVocabulary + v)];
        ASSERT_NEAR(logits[at], expected, tolerance * (1 + std::abs(expected)))
            << "sequence " << r << ", " << decoding.done(r) << " tokens, logit " << v;
      }
    }
  }
  for (std::int64_t r = 0; r < kSequences; ++r) EXPECT_EQ(decoding.done(r), kLength);
}

class Decode : public testing::TestWithParam<std::size_t> {};

TEST_P(Decode, GivesTheLogitsOfTheWholeForwardPass) {
  const auto& [name, model] = models()[GetParam()];
  const double tolerance = name.ends_with("in_f16") ? 2e-3 : name.ends_with("in_int8") ? 3e-2 : 2e-5;
  for (const std::string& id : computing_devices()) {
    // Kernels take a while to compile on the others.
    if (!id.starts_with("cpu") && name != "llama" && name != "soft_cap_and_sink" &&
        name != "rings_and_pages" && name != "latents")
      continue;
    SCOPED_TRACE(id);
    check_steps(model, id, decode_options(), tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Decode, testing::Range<std::size_t>(0, models().size()),
                         [](const auto& info) { return models()[info.param].first; });

// The logits of the tokens that are the last of their sequence after a step, by sequence and position.
using LogitsByToken = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>>;
LogitsByToken logits_of(const layers::Config& model, const trainer::ComposeOptions& options,
                        const std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>>& steps) {
  Decoding decoding(model, "cpu", options);
  LogitsByToken result;
  for (const auto& [size, counts] : steps) {
    const std::vector<float> logits = decoding.step(size, counts);
    auto at = logits.begin();
    for (std::int64_t r = 0; r < kSequences; ++r)
      if (counts[static_cast<std::size_t>(r)] > 0) {
        result[{r, decoding.done(r)}].assign(at, at + kVocabulary);
        at += kVocabulary;
      }
  }
  return result;
}

void check_bits(const std::string& name, const layers::Config& model, kernels::DType dtype) {
  SCOPED_TRACE(name + " in " + std::string(hal::to_string(dtype)));
  trainer::ComposeOptions options = decode_options(dtype);
  options.logits_batch = options.logits_sequence = 0;
  options.decode.tokens = {1, 4, 9, 40};
  options.decode.row_exact = true;
  std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> alone;
  for (std::int64_t r = 0; r < kSequences; ++r)
    for (std::int64_t i = 0; i < kLength; ++i) {
      std::vector<std::int64_t> counts(kSequences, 0);
      counts[static_cast<std::size_t>(r)] = 1;
      alone.emplace_back(1, counts);
    }
  const LogitsByToken expected = logits_of(model, options, alone);
  for (const auto& steps :
       {std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>>{
            {9, {6, 0, 3}}, {4, {0, 4, 0}}, {9, {1, 1, 5}}, {1, {1, 0, 0}}, {4, {1, 1, 1}}, {40, {3, 6, 3}}},
        {{40, {12, 11, 7}}, {9, {0, 1, 5}}},
        {{40, {2, 1, 12}}, {40, {10, 11, 0}}}})
    for (const auto& [token, logits] : logits_of(model, options, steps))
      EXPECT_EQ(logits, expected.at(token))
          << "sequence " << token.first << ", " << token.second << " tokens";
}

TEST_P(Decode, HasTheSameBitsHoweverTokensShareRuns) {
  const auto& [name, model] = models()[GetParam()];
  for (const kernels::DType dtype : {kernels::DType::f32, kernels::DType::bf16})
    check_bits(name, model, dtype);
}

TEST(DecodeBits, HoldForWiderLayers) {
  const layers::CausalLM::Config wide = layers::llama_config(
      {.vocab = kVocabulary, .dim = 136, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 650, .tied = false});
  for (const kernels::DType dtype : {kernels::DType::f32, kernels::DType::bf16, kernels::DType::f16}) {
    check_bits("wide", wide, dtype);
    check_bits("experts", with("FeedForward", "MoE{num_experts=4 gating=TopK{k=2 regularizers=[]}}", wide),
               dtype);
  }
}

TEST(DecodeBits, NeedVariantsThatPromiseThem) {
  trainer::ComposeOptions options = decode_options();
  options.decode.row_exact = true;
  options.kernels = {{.op = "matmul", .variant = "packed"}};
  const auto cpu = build().registry.open("cpu");
  EXPECT_THAT(message_of([&] { trainer::compose_inference(tiny_llama(), options, catalog(), cpu->info()); }),
              HasSubstr("does not give a row the same bits in any number of rows"));
  for (const std::string& id : computing_devices()) {
    if (id.starts_with("cpu")) continue;
    const auto device = build().registry.open(id);
    options.kernels.clear();
    auto model = tiny_llama();
    EXPECT_EQ(message_of([&] { trainer::compose_inference(model, options, catalog(), device->info()); }),
              "no error")
        << id;
    layers::replace(model, "Linear", "Nf4Linear{}", classes());
    EXPECT_THAT(message_of([&] { trainer::compose_inference(model, options, catalog(), device->info()); }),
                HasSubstr("(row_exact)"))
        << id;
  }
}

TEST(DecodeIn16Bits, GivesTheLogitsOfTheWholeForwardPass) {
  check_steps(tiny_llama(), "cpu", decode_options(kernels::DType::bf16), 3e-2);
  check_steps(of_experts(tiny_llama()), "cpu", decode_options(kernels::DType::f16), 1e-2);
  check_steps(latent("LatentCache{}"), "cpu", decode_options(kernels::DType::f16), 1e-2);
}

TEST(DecodeIn16Bits, StoresWeightsAsTheyAreMultiplied) {
  Bench bench("cpu");
  bench.start(trainer::compose_inference(tiny_llama(), decode_options(kernels::DType::bf16), catalog(),
                                         bench.device->info()));
  const auto& types = bench.session->plan().persistent_types;
  EXPECT_EQ(types.at("decoder/stack/layer0/attention/q_proj/weight").dtype, kernels::DType::bf16);
  EXPECT_EQ(types.at("decoder/embedding/weight").dtype, kernels::DType::bf16);  // looked up and multiplied
  EXPECT_EQ(types.at("decoder/stack/layer0/attention_norm/weight").dtype, kernels::DType::f32);
  EXPECT_EQ(types.at("decoder/stack/layer0/attention/cache/keys").dtype, kernels::DType::bf16);
  Bench latents("cpu");
  latents.start(trainer::compose_inference(latent("LatentCache{}"), decode_options(kernels::DType::bf16),
                                           catalog(), latents.device->info()));
  EXPECT_EQ(latents.device->allocated_bytes(), latents.session->plan().peak_bytes);
  for (const char* projection : {"k_proj", "v_proj"})
    EXPECT_EQ(
        latents.session->plan()
            .persistent_types.at(std::string("decoder/stack/layer0/attention/") + projection + "/weight")
            .dtype,
        kernels::DType::bf16);
}

TEST(DecodePlan, HasItsCachesAsAClassOfMemory) {
  Bench bench("cpu");
  bench.start(trainer::compose_inference(tiny_llama(), decode_options(), catalog(), bench.device->info()));
  const trainer::Plan& plan = bench.session->plan();
  // 3 layers, keys and values of 2 heads of 4 features, 3 pages of 5 tokens for each of 3 sequences.
  EXPECT_EQ(plan.memory.at("cache"),
            3 * 2 * hal::round_up(2 * 4 * 4 * 3 * 3 * kPageSize, trainer::kPlacementAlignment));
  EXPECT_EQ(bench.device->allocated_bytes(), plan.peak_bytes);
  EXPECT_TRUE(plan.states.empty());
  for (const layers::ParameterInfo& parameter : plan.parameters)
    EXPECT_EQ(parameter.path.find("/cache/"), std::string::npos);
}

std::string refusal(const layers::Config& model) {
  const auto device = build().registry.open("null");
  try {
    trainer::compose_inference(model, decode_options(), catalog(), device->info());
  } catch (const layers::NoCache& no_cache) {
    return no_cache.what();
  }
  return "";
}

TEST(DecodePlan, RefusesWhatACacheCannotDo) {
  const std::string attention = "decoder.stack.layer.attention.";
  EXPECT_THAT(refusal(set(attention + "cache", "none")), HasSubstr("layer0/attention"));
  EXPECT_THAT(refusal(with("Causal", "Full{}")), HasSubstr("sees later ones"));
  EXPECT_THAT(refusal(with("Causal", "MaskFunction{visible=\"k % 3 < 2 or k == q\" base=Causal{}}")),
              HasSubstr("an expression"));
  EXPECT_THAT(refusal(set(attention + "distance_bias", "RelativeBias{buckets=4 max_distance=5}")),
              HasSubstr("a table"));
  EXPECT_THAT(refusal(layers::encoder_decoder_config(
                  {.vocab = 19, .dim = 16, .layers = 1, .heads = 4, .kv_heads = 2, .ffn = 24})),
              HasSubstr("encoder"));
  EXPECT_EQ(refusal(tiny_llama()), "");
  EXPECT_THAT(
      refusal(with("PagedCache", "LatentCache{}")),
      testing::AllOf(HasSubstr("layer0/attention"), HasSubstr("LatentAttention"), HasSubstr("PagedCache")));
  EXPECT_EQ(refusal(latent("LatentCache{}")), "");
  EXPECT_THAT(refusal(set(attention + "k_proj", "Lora{rank=2}", latent("LatentCache{}"))),
              testing::AllOf(HasSubstr("layer0/attention"), HasSubstr("another layer as k_proj"),
                             HasSubstr("PagedCache")));
}

TEST(DecodePlan, SaysWhatWouldHelpWhenACacheDoesNotFit) {
  hal::DeviceInfo device = build().registry.open("null")->info();
  device.limits.memory_bytes = device.profile.memory_bytes = 1 << 20;
  trainer::ComposeOptions options = decode_options();
  options.logits_batch = options.logits_sequence = 0;
  options.decode.length = 1 << 16;
  EXPECT_THAT(message_of([&] { trainer::compose_inference(tiny_llama(), options, catalog(), device); }),
              testing::AllOf(HasSubstr("out of memory"), HasSubstr("cache "),
                             HasSubstr("a shorter sequence (now 65536)"),
                             HasSubstr("PagedCache{codec=Plain{dtype=bf16}}")));
}

TEST(DecodePlan, ChecksItsSizes) {
  const auto device = build().registry.open("null");
  const auto message = [&](const std::function<void(trainer::DecodeOptions&)>& change) {
    trainer::ComposeOptions options = decode_options();
    change(options.decode);
    return message_of([&] { trainer::compose_inference(tiny_gpt2(), options, catalog(), device->info()); });
  };
  EXPECT_THAT(message([](auto& o) { o.tokens = {0}; }), HasSubstr("decode.tokens"));
  EXPECT_THAT(message([](auto& o) { o.sequences = 0; }), HasSubstr("decode.sequences"));
  EXPECT_THAT(message([](auto& o) { o.rows = 0; }), HasSubstr("decode.rows"));
  EXPECT_THAT(message([](auto& o) { o.length = 0; }), HasSubstr("decode.length"));
  EXPECT_THAT(message([](auto& o) { o.page_size = 0; }), HasSubstr("decode.page_size"));
  EXPECT_THAT(message([](auto& o) { o.pages = -1; }), HasSubstr("decode.pages"));
  EXPECT_THAT(message([](auto& o) { o.length = 13; }), HasSubstr("at most 12 tokens"));
}

}  // namespace
}  // namespace meshloom::tests
