// Caches and codecs: a request gets the same bits from every cache, and numbers in fewer bits cost little of the loss.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "layers/cache/kv_cache.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "tests/trainer/inference/support.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/memory/memory.h"
#include "trainer/execute/session.h"
#include "trainer/inference/draft_model.h"
#include "trainer/io/file.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests::caches {
namespace {

using testing::HasSubstr;
using trainer::Engine;
using trainer::EngineOptions;
using trainer::FinishReason;
using trainer::Request;

const layers::ClassTable& classes() {
  static const layers::ClassTable table = trainer::recipe_classes();
  return table;
}

// Another kind of attention in `tiny`, and another cache. Longer than any ring of the steps below.
constexpr std::int64_t kLongest = 60, kStepTokens = 8, kWindow = 6;
const char* const kAllLayers = "Causal";
const char* const kSlidingWindow = "SlidingWindow{window=6}";

TinyModel with_cache(const std::string& cache, const std::string& mask = kSlidingWindow) {
  TinyModel model;
  layers::replace(*model.config.model, "Causal", mask, classes());
  layers::replace(*model.config.model, "PagedCache", cache, classes());
  return model;
}

constexpr std::int64_t kRank = 24, kRotary = 8;
void make_latent(TinyModel& model, const std::string& cache, const std::string& mask = kAllLayers) {
  layers::replace(*model.config.model, "Attention", "LatentAttention{kv_rank=24 head_dim=16 rotary_dim=8}",
                  classes());
  if (mask != kAllLayers) layers::replace(*model.config.model, "Causal", mask, classes());
  layers::replace(*model.config.model, "PagedCache", cache, classes());
}
TinyModel latent(const std::string& cache, const std::string& mask = kAllLayers) {
  TinyModel model;
  make_latent(model, cache, mask);
  model.initialize(5);
  return model;
}

// The first layer sees all tokens, the second the window.
TinyModel mixed(const std::string& all, const std::string& window) {
  TinyModel model;
  layers::replace(*model.config.model, "PagedCache", all, classes());
  layers::replace(
      *model.config.model, "Stack",
      fmt::format("HeterogeneousStack{{overrides=[LayerOverride{{where=attention.mask "
                  "with=SlidingWindow{{window=6}} first=1}}, LayerOverride{{where=attention.cache "
                  "with={} first=1}}]}}",
                  window),
      classes());
  return model;
}

// Some of which begin alike; greedy and sampled; every fourth one is scored.
std::vector<Request> requests_of(int count) {
  std::mt19937_64 random(21);
  const std::vector<std::int32_t> common = random_tokens(30, 2);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    const auto shared = random() % 2 == 0 ? static_cast<std::ptrdiff_t>(random() % common.size()) : 0;
    request.prompt.assign(common.begin(), common.begin() + shared);
    for (const std::int32_t token : random_tokens(1 + static_cast<std::int64_t>(random() % 25), random()))
      request.prompt.push_back(token);
    request.max_tokens = 1 + static_cast<std::int64_t>(random() % 30);
    request.sampler.temperature = i % 2 == 0 ? 0 : 0.9;
    request.sampler.seed = random();
    request.score_prompt = i % 4 == 0;  // such prompts are computed whole
    requests.push_back(std::move(request));
  }
  return requests;
}

using Bits = std::vector<std::pair<std::int32_t, std::uint32_t>>;  // tokens and their log-probabilities

struct Texts {
  std::vector<Bits> bits;
  trainer::EngineCounters counters;
  std::string no_prefix_cache;
};

Texts write(TinyModel& model, const EngineOptions& options, const std::vector<Request>& requests,
            bool at_once, std::unique_ptr<trainer::Speculator> speculator = nullptr) {
  Engine engine = model.engine(options, std::move(speculator));
  EXPECT_EQ(engine.batch_dependence(), "");
  std::vector<std::shared_ptr<RecordedEvents>> heard;
  for (const Request& request : requests) {
    heard.push_back(send(engine, request));
    if (!at_once) finish_all(engine);
  }
  finish_all(engine);
  Texts texts;
  texts.counters = engine.counters();
  texts.no_prefix_cache = engine.no_prefix_cache();
  EXPECT_EQ(texts.counters.pages_in_use, 0);
  for (const auto& each : heard) {
    EXPECT_EQ(each->reason(), FinishReason::length) << each->error;
    Bits& bits = texts.bits.emplace_back();
    for (const auto* scores : {&each->prompt, &each->tokens})
      for (const trainer::TokenScore& score : *scores) {
        std::uint32_t word;
        std::memcpy(&word, &score.logprob, sizeof word);
        bits.emplace_back(score.id, word);
      }
  }
  return texts;
}

EngineOptions plain_options() {
  return {.max_length = kLongest, .max_sequences = 4, .step_tokens = kStepTokens, .page_size = 8};
}

// In every way that an engine has of sharing steps.
void expect_bits(const std::string& name, TinyModel& model, const std::vector<Bits>& expected,
                 const std::vector<Request>& requests, bool prefix_cache) {
  SCOPED_TRACE(name);
  const EngineOptions plain = plain_options();
  const Texts alone = write(model, plain, requests, false);
  EXPECT_EQ(alone.bits, expected) << "one by one";
  EXPECT_EQ(alone.no_prefix_cache.empty(), prefix_cache);
  EXPECT_EQ(alone.counters.cached_tokens > 0, prefix_cache);
  EXPECT_EQ(write(model, plain, requests, true).bits, expected) << "at once";
  EngineOptions options = plain;
  options.step_tokens = 3;
  EXPECT_EQ(write(model, options, requests, true).bits, expected) << "in small steps";
  options = plain;
  options.draft_tokens = 5;
  EXPECT_EQ(write(model, options, requests, true).bits, expected) << "with prompt lookup";
  const Texts guessed =
      write(model, options, requests, true,
            std::make_unique<trainer::DraftModel>(model.config, options, kLongest, *model.device,
                                                  inference_catalog(), model.weights));
  EXPECT_EQ(guessed.bits, expected) << "with the model's own guesses";
  EXPECT_GT(guessed.counters.accepted_tokens, 0);
  // A model of other weights, whose guesses are wrong and are written behind the text.
  TinyModel other;
  other.config = model.config;
  other.initialize(9);
  const Texts misled =
      write(model, options, requests, true,
            std::make_unique<trainer::DraftModel>(other.config, options, kLongest, *other.device,
                                                  inference_catalog(), other.weights));
  EXPECT_EQ(misled.bits, expected) << "with wrong guesses";
  EXPECT_GT(misled.counters.draft_tokens, misled.counters.accepted_tokens);
  options = plain;
  options.pages = 8;
  EXPECT_EQ(write(model, options, requests, true).bits, expected) << "with few pages";
}

TEST(Caches, GiveTheBitsOfPages) {
  const std::vector<Request> requests = requests_of(16);
  const auto expected = [&](TinyModel model) { return write(model, plain_options(), requests, false).bits; };
  const std::vector<Bits> of_window = expected(with_cache("PagedCache{}")),
                          of_all = expected(with_cache("PagedCache{}", kAllLayers)),
                          of_both = expected(mixed("PagedCache{}", "PagedCache{}"));
  EXPECT_NE(of_window, of_all);
  EXPECT_NE(of_both, of_all);
  for (const std::int64_t page : {1, 5, 16, 64, 256}) {
    TinyModel model = with_cache("PagedCache{}");
    EngineOptions options = plain_options();
    options.page_size = page;
    EXPECT_EQ(write(model, options, requests, true).bits, of_window) << "pages of " << page;
  }
  for (const auto& [cache, prefix_cache] :
       {std::pair{"WindowCache{}", false}, {"ContiguousCache{}", false}, {"PagedCache{}", true}}) {
    TinyModel model = with_cache(cache);
    expect_bits(cache, model, of_window, requests, prefix_cache);
  }
  TinyModel contiguous = with_cache("ContiguousCache{}", kAllLayers);
  expect_bits("ContiguousCache of all tokens", contiguous, of_all, requests, false);
  TinyModel both = mixed("PagedCache{}", "WindowCache{}");
  expect_bits("PagedCache and WindowCache", both, of_both, requests, false);
  TinyModel no_pages = mixed("ContiguousCache{}", "WindowCache{}");
  expect_bits("ContiguousCache and WindowCache", no_pages, of_both, requests, false);
}

TEST(Caches, GiveTheSameBitsWithEachCodec) {
  const std::vector<Request> requests = requests_of(8);
  std::vector<std::vector<Bits>> by_codec;
  for (const char* codec :
       {"Plain{}", "Plain{dtype=bf16}", "Plain{dtype=f16}", "Int8Rows{}", "Nf4Rows{}", "Nf4Rows{block=8}"}) {
    SCOPED_TRACE(codec);
    std::vector<std::vector<Bits>> by_cache;
    for (const char* cache : {"PagedCache", "WindowCache", "ContiguousCache"}) {
      TinyModel model = with_cache(fmt::format("{}{{codec={}}}", cache, codec));
      by_cache.push_back(write(model, plain_options(), requests, true).bits);
      EXPECT_EQ(by_cache.back(), by_cache.front()) << cache;
    }
    for (const std::vector<Bits>& other : by_codec) EXPECT_NE(by_cache.front(), other);
    by_codec.push_back(by_cache.front());
  }
}

TEST(Caches, OfLatentsGiveTheSameBits) {
  const std::vector<Request> requests = requests_of(16);
  for (const char* mask : {kAllLayers, kSlidingWindow}) {
    SCOPED_TRACE(mask);
    TinyModel model = latent("LatentCache{}", mask);
    const std::vector<Bits> expected = write(model, plain_options(), requests, false).bits;
    for (const std::int64_t page : {1, 5, 16, 64, 256}) {
      EngineOptions options = plain_options();
      options.page_size = page;
      EXPECT_EQ(write(model, options, requests, true).bits, expected) << "pages of " << page;
    }
    expect_bits("LatentCache", model, expected, requests, true);
    // Those that keep keys and values of heads add in another order.
    TinyModel of_heads = latent("PagedCache{}", mask);
    const std::vector<Bits> others = write(of_heads, plain_options(), requests, true).bits;
    EXPECT_NE(others, expected);
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (requests[i].score_prompt)
        for (std::size_t at = 0; at + 1 < requests[i].prompt.size(); ++at) {
          float a, b;
          std::memcpy(&a, &expected[i][at].second, sizeof a);
          std::memcpy(&b, &others[i][at].second, sizeof b);
          EXPECT_NEAR(a, b, 1e-4 * (1 + std::abs(a)));
        }
  }
}

TEST(Caches, OfLatentsGiveTheSameBitsWithEachCodec) {
  const std::vector<Request> requests = requests_of(8);
  std::vector<std::vector<Bits>> by_codec;
  for (const char* codec : {"Plain{}", "Plain{dtype=bf16}", "Int8Rows{}", "Nf4Rows{}", "Nf4Rows{block=8}"}) {
    SCOPED_TRACE(codec);
    TinyModel model = latent(fmt::format("LatentCache{{codec={}}}", codec));
    const std::vector<Bits> alone = write(model, plain_options(), requests, false).bits;
    EngineOptions options = plain_options();
    options.page_size = 16;
    EXPECT_EQ(write(model, options, requests, true).bits, alone);
    for (const std::vector<Bits>& other : by_codec) EXPECT_NE(alone, other);
    by_codec.push_back(alone);
  }
}

TEST(Caches, RefuseWhatTheyCannotKeep) {
  TinyModel model = with_cache("WindowCache{}", kAllLayers);
  EXPECT_THAT(message_of([&] { model.engine(plain_options()); }), HasSubstr("sliding window"));
  EXPECT_THROW(model.engine(plain_options()), layers::NoCache);
  TinyModel kept = with_cache("WindowCache{}");
  EXPECT_THAT(kept.engine(plain_options()).no_prefix_cache(), HasSubstr("one text alone"));
  TinyModel paged = with_cache("PagedCache{}");
  EXPECT_EQ(paged.engine(plain_options()).no_prefix_cache(), "");
  TinyModel of_heads = with_cache("LatentCache{}");
  EXPECT_THROW(of_heads.engine(plain_options()), layers::NoCache);
}

TEST(Caches, TakeTheMemoryThatTheySay) {
  const auto cache_bytes = [](TinyModel model) {
    const auto serving =
        trainer::compose_serving(model.config, trainer::runner_options(plain_options(), model.config),
                                 inference_catalog(), model.device->info());
    const trainer::Plan& plan = serving.plan;
    EXPECT_LT(std::abs(plan.memory.at("cache") - plan.cache_bytes.page * 32 - plan.cache_bytes.sequence * 4),
              8 * trainer::kPlacementAlignment);
    return std::pair(plan.cache_bytes.page, plan.cache_bytes.sequence);
  };
  // Keys and values of 2 heads of 16 features, in 2 layers.
  constexpr std::int64_t kToken = 2 * 2 * 2 * 16;
  using Bytes = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(cache_bytes(with_cache("PagedCache{}")), Bytes(4 * kToken * 8, 0));
  EXPECT_EQ(cache_bytes(with_cache("PagedCache{codec=Int8Rows{}}")), Bytes((kToken + 8 * 4) * 8, 0));
  EXPECT_EQ(cache_bytes(with_cache("PagedCache{codec=Nf4Rows{}}")), Bytes((kToken / 2 + 8 * 4) * 8, 0));
  EXPECT_EQ(cache_bytes(with_cache("ContiguousCache{}")), Bytes(0, 4 * kToken * kLongest));
  constexpr std::int64_t kLatents = 2 * (kRank + kRotary);  // in 2 layers
  EXPECT_EQ(cache_bytes(latent("LatentCache{}")), Bytes(4 * kLatents * 8, 0));
  EXPECT_EQ(cache_bytes(latent("LatentCache{codec=Int8Rows{}}")), Bytes((kLatents + 2 * 4) * 8, 0));
  EXPECT_EQ(cache_bytes(latent("LatentCache{codec=Nf4Rows{}}")), Bytes((kLatents / 2 + 2 * 4) * 8, 0));
  EXPECT_EQ(cache_bytes(with_cache("WindowCache{}")), Bytes(0, 4 * kToken * (kWindow - 1 + kStepTokens)));
}

// The bytes of this repository's pages, of which the last tenth is held out.
const std::vector<std::int32_t>& pages() {
  static const std::vector<std::int32_t> tokens = [] {
    std::vector<std::int32_t> bytes;
    for (const char* name : {"models", "training", "serving", "mesh", "data", "troubleshooting"}) {
      const std::string path = std::string(MESHLOOM_SOURCE_DIR) + "/docs/" + name + ".md";
      for (const char c : trainer::read_file(path, path)) bytes.push_back(static_cast<unsigned char>(c));
    }
    return bytes;
  }();
  return tokens;
}
std::size_t held_out() { return pages().size() / 10 * 9; }

trainer::StoredTensors trained(const trainer::TrainerConfig& config) {
  const auto device = inference_registry().open("cpu");
  trainer::ComposeOptions options = config.compose_options();
  options.evaluation = false;
  trainer::Session session(*device, inference_catalog(),
                           trainer::compose_training(*config.model, *config.learner, options,
                                                     inference_catalog(), device->info()));
  trainer::initialize(session, 1);
  const std::int64_t row = config.sequence + 1;
  std::mt19937_64 random(5);
  for (int step = 0; step < 250; ++step) {
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t b = 0; b < config.batch; ++b) {
      const auto at = pages().begin() +
                      static_cast<std::ptrdiff_t>(random() % (held_out() - static_cast<std::size_t>(row)));
      tokens.insert(tokens.end(), at, at + row - 1);
      targets.insert(targets.end(), at + 1, at + row);
    }
    const float rate = 3e-3f;
    session.write("tokens", std::as_bytes(std::span(tokens)));
    session.write("targets", std::as_bytes(std::span(targets)));
    session.write("lr", std::as_bytes(std::span(&rate, 1)));
    session.run(trainer::Step::train);
  }
  return stored_weights(config, [&](const layers::ParameterInfo& parameter, std::vector<float>& values) {
    session.read(parameter.path, std::as_writable_bytes(std::span(values)));
  });
}

// Of held-out texts, per token.
double loss(TinyModel& model) {
  Engine engine = model.engine({.max_length = 65, .max_sequences = 8, .step_tokens = 64, .page_size = 16});
  std::vector<std::shared_ptr<RecordedEvents>> heard;
  for (std::size_t at = held_out(), i = 0; i < 40; ++i, at += 64) {
    Request request;
    request.prompt.assign(pages().begin() + static_cast<std::ptrdiff_t>(at),
                          pages().begin() + static_cast<std::ptrdiff_t>(at + 64));
    request.score_prompt = true;
    request.max_tokens = 0;
    heard.push_back(send(engine, request));
  }
  finish_all(engine);
  double sum = 0, count = 0;
  for (const auto& each : heard)
    for (const trainer::TokenScore& score : each->prompt) sum -= score.logprob, ++count;
  return sum / count;
}

void check_losses(TinyModel model, const std::string& cache) {
  SCOPED_TRACE(cache);
  model.weights = trained(model.config);
  const auto loss_with = [&](const std::string& codec) {
    layers::replace(*model.config.model, cache, cache + "{codec=" + codec + "}", classes());
    return loss(model);
  };
  const double plain = loss_with("Plain{dtype=f32}"), int8 = loss_with("Int8Rows{}"),
               nf4 = loss_with("Nf4Rows{}");
  fmt::print("{}: held-out loss {:.5f}; with int8 rows {:+.3f} %, with nf4 rows {:+.3f} %\n", cache, plain,
             100 * (int8 / plain - 1), 100 * (nf4 / plain - 1));
  EXPECT_LT(plain, 3.2);  // it has learnt something: of bytes alone it would be 5.5
  EXPECT_LE(int8, 1.003 * plain);
  EXPECT_LE(nf4, 1.03 * plain);
  EXPECT_NE(int8, plain);
  EXPECT_NE(nf4, plain);
}

TEST(Caches, CostLittleOfTheLossInFewerBits) {
  check_losses(TinyModel(), "PagedCache");
  check_losses(latent("LatentCache{}"), "LatentCache");
}

}  // namespace
}  // namespace meshloom::tests::caches
