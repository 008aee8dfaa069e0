// Texts of a model with an encoder: each has the bits that its source gives it, whatever shares the steps.
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
#include "trainer/compose/memory/memory.h"
#include "trainer/inference/generator.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::Engine;
using trainer::EngineOptions;
using trainer::FinishReason;
using trainer::Request;

constexpr std::int64_t kLongest = 30, kSource = 20, kSequences = 4;

const layers::ClassTable& classes() {
  static const layers::ClassTable table = trainer::recipe_classes();
  return table;
}

TinyModel with_source(const std::string& cache = "SourceCache{}") {
  TinyModel model;
  model.config = trainer::tiny_pairs();
  layers::replace(*model.config.model, "CrossAttentionCache", cache, classes());
  model.initialize(5);
  return model;
}

EngineOptions plain_options() {
  return {.max_length = kLongest,
          .max_sequences = kSequences,
          .step_tokens = 8,
          .page_size = 4,
          .max_source = kSource};
}

std::vector<Request> requests_of(int count) {
  std::mt19937_64 random(3);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.prompt = {0};
    request.source = random_tokens(1 + static_cast<std::int64_t>(random() % kSource), random());
    request.max_tokens = 1 + static_cast<std::int64_t>(random() % 25);
    request.sampler.temperature = i % 2 == 0 ? 0 : 0.9;
    request.sampler.seed = random();
    requests.push_back(std::move(request));
  }
  // The same sources, and a text that begins alike with another.
  requests[1].source = requests[0].source;
  requests[2].prompt = requests[3].prompt = {0, 5, 9, 17, 4};
  return requests;
}

using Bits = std::vector<std::pair<std::int32_t, std::uint32_t>>;  // tokens and their log-probabilities

std::vector<Bits> write(TinyModel& model, const EngineOptions& options, const std::vector<Request>& requests,
                        bool at_once, std::int64_t* preemptions = nullptr) {
  Engine engine = model.engine(options);
  EXPECT_EQ(engine.batch_dependence(), "");
  EXPECT_THAT(engine.no_prefix_cache(), HasSubstr("source"));
  std::vector<std::shared_ptr<RecordedEvents>> heard;
  for (const Request& request : requests) {
    heard.push_back(send(engine, request));
    if (!at_once) finish_all(engine);
  }
  finish_all(engine);
  std::vector<Bits> all;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(heard[i]->reason(), FinishReason::length) << heard[i]->error;
    EXPECT_EQ(heard[i]->usage.prompt_tokens, static_cast<std::int64_t>(requests[i].source.size()));
    EXPECT_EQ(heard[i]->usage.cached_tokens, 0);
    Bits& bits = all.emplace_back();
    for (const trainer::TokenScore& score : heard[i]->tokens) {
      std::uint32_t word;
      std::memcpy(&word, &score.logprob, sizeof word);
      bits.emplace_back(score.id, word);
    }
  }
  EXPECT_EQ(engine.counters().cached_tokens, 0);
  if (preemptions) *preemptions = engine.counters().preemptions;
  return all;
}

TEST(EngineSources, GiveTheSameBitsWhateverSharesSteps) {
  const std::vector<Request> requests = requests_of(14);
  std::vector<std::vector<Bits>> by_cache;
  for (const char* cache :
       {"SourceCache{}", "SourceCache{codec=Plain{dtype=bf16}}", "SourceCache{codec=Plain{dtype=f16}}",
        "SourceCache{codec=Int8Rows{}}", "SourceCache{codec=Nf4Rows{}}"}) {
    SCOPED_TRACE(cache);
    TinyModel model = with_source(cache);
    const std::vector<Bits> alone = write(model, plain_options(), requests, false);
    EXPECT_EQ(write(model, plain_options(), requests, true), alone) << "at once";
    EngineOptions options = plain_options();
    options.step_tokens = 3;
    options.page_size = 16;
    EXPECT_EQ(write(model, options, requests, true), alone) << "in small steps";
    options = plain_options();
    options.pages = 9;
    std::int64_t preemptions = 0;
    EXPECT_EQ(write(model, options, requests, true, &preemptions), alone) << "with few pages";
    EXPECT_GT(preemptions, 0);
    for (const std::vector<Bits>& other : by_cache) EXPECT_NE(alone, other);
    by_cache.push_back(alone);
  }
}

// What `generate` writes, of which one computes source and text anew for every token.
TEST(EngineSources, GiveTheTextOfGenerate) {
  TinyModel model = with_source(), recomputing = with_source();
  layers::set(*recomputing.config.model, "decoder.stack.layer.cross_attention.cache", "none", classes());
  std::vector<Request> requests = requests_of(8);
  for (Request& request : requests) request.sampler.temperature = 0;
  const std::vector<Bits> written = write(model, plain_options(), requests, true);
  trainer::Generator kept(model.config, kLongest, kSource, *model.device, inference_catalog(), model.weights),
      anew(recomputing.config, kLongest, kSource, *recomputing.device, inference_catalog(),
           recomputing.weights);
  EXPECT_EQ(kept.recomputes(), "");
  EXPECT_THAT(anew.recomputes(), HasSubstr("layer0/cross_attention"));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    std::vector<std::int32_t> text = request.prompt;
    for (const auto& [id, bits] : written[i]) text.push_back(id);
    for (trainer::Generator* generator : {&kept, &anew})
      EXPECT_EQ(generator->generate({request.prompt, request.source}, request.max_tokens, request.sampler),
                text);
  }
}

TEST(EngineSources, TakeTheMemoryThatTheySay) {
  // Keys and values of 2 heads of 16 features, in 2 layers.
  constexpr std::int64_t kToken = 2 * 2 * 2 * 16;
  for (const auto& [cache, bytes] : {std::pair{"SourceCache{}", 4 * kToken},
                                     {"SourceCache{codec=Plain{dtype=bf16}}", 2 * kToken},
                                     {"SourceCache{codec=Int8Rows{}}", kToken + 8 * 4},
                                     {"SourceCache{codec=Nf4Rows{}}", kToken / 2 + 8 * 4}}) {
    TinyModel model = with_source(cache);
    const auto serving =
        trainer::compose_serving(model.config, trainer::runner_options(plain_options(), model.config),
                                 inference_catalog(), model.device->info());
    EXPECT_EQ(serving.plan.cache_bytes.sequence, bytes * kSource) << cache;
    Engine engine = model.engine(plain_options());
    EXPECT_EQ(model.device->allocated_bytes(), serving.plan.peak_bytes) << cache;
  }
}

TEST(EngineSources, MustFitTheModel) {
  TinyModel model = with_source();
  Engine engine = model.engine(plain_options());
  EXPECT_EQ(engine.max_source(), kSource);
  EXPECT_EQ(engine.embedding_size(), 0);
  const auto refusal = [&](trainer::Engine& by, std::int64_t source, std::int32_t id = 7) {
    Request request;
    request.prompt = {0};
    request.source.assign(static_cast<std::size_t>(source), id);
    return message_of([&] { send(by, request); });
  };
  EXPECT_EQ(refusal(engine, kSource), "no error");
  EXPECT_EQ(refusal(engine, 0), "source: must hold 1 to 20 tokens; found 0");
  EXPECT_EQ(refusal(engine, kSource + 1), "source: must hold 1 to 20 tokens; found 21");
  EXPECT_THAT(refusal(engine, 1, 256), HasSubstr("id 256"));
  TinyModel without;
  Engine other = without.engine({});
  EXPECT_THAT(refusal(other, 1), HasSubstr("must be left out for a model without an encoder"));
  EngineOptions options = plain_options();
  EXPECT_THAT(message_of([&] { without.engine(options); }),
              HasSubstr("max-source: needs a model with an encoder"));
  options.draft_tokens = 3;
  EXPECT_THAT(message_of([&] { model.engine(options); }),
              HasSubstr("draft-tokens: needs a model without an encoder"));
  options = plain_options();
  options.max_source = 0;
  EXPECT_EQ(model.engine(options).max_source(), 32) << "as in training";
}

}  // namespace
}  // namespace meshloom::tests
