// The engine: every request gets the same tokens whatever else runs, and ends as it should.
#include "trainer/inference/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "layers/cache/kv_cache.h"
#include "tests/message_of.h"
#include "tests/trainer/inference/support.h"
#include "trainer/inference/draft_model.h"
#include "trainer/inference/generator.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::Engine;
using trainer::EngineCounters;
using trainer::EngineOptions;
using trainer::FinishReason;
using trainer::Request;
using trainer::TokenScore;

constexpr std::int64_t kLongest = 64;

// Of mixed lengths, some of which begin alike; greedy and sampled, some with all that a sampler knows, some scored.
std::vector<Request> mixed_requests(int count) {
  std::mt19937_64 random(11);
  const std::vector<std::int32_t> common = random_tokens(40, 1);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    const auto shared = random() % 3 == 0 ? static_cast<std::ptrdiff_t>(random() % common.size()) : 0;
    request.prompt.assign(common.begin(), common.begin() + shared);
    for (const std::int32_t token : random_tokens(1 + static_cast<std::int64_t>(random() % 20), random()))
      request.prompt.push_back(token);
    request.max_tokens = 1 + static_cast<std::int64_t>(random() % 30);
    request.sampler.temperature = i % 2 == 0 ? 0 : 0.9;
    request.sampler.seed = random();
    if (i % 4 == 1)
      request.sampler = {.temperature = 1.2,
                         .top_k = 50,
                         .top_p = 0.9,
                         .min_p = 0.01,
                         .repetition_penalty = 1.2,
                         .presence_penalty = 0.5,
                         .frequency_penalty = 0.5,
                         .logit_bias = {{3, 2.0}, {200, -5.0}},
                         .seed = random()};
    request.priority = static_cast<int>(random() % 3);
    request.score_prompt = i % 5 == 0;
    request.top = i % 3 == 0 ? 4 : 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Outcome {
  std::vector<std::shared_ptr<RecordedEvents>> heard;
  EngineCounters counters;
};

Outcome all_at_once(TinyModel& model, const EngineOptions& options, const std::vector<Request>& requests) {
  Engine engine = model.engine(options);
  Outcome outcome;
  for (const Request& request : requests) outcome.heard.push_back(send(engine, request));
  finish_all(engine);
  outcome.counters = engine.counters();
  EXPECT_EQ(outcome.counters.pages_in_use, 0);
  EXPECT_EQ(outcome.counters.running + outcome.counters.waiting, 0);
  return outcome;
}

// Scores of the same tokens: equal ids, and log-probabilities that differ by rounding. Counts those whose bits differ.
void compare_scores(const std::vector<TokenScore>& a, const std::vector<TokenScore>& b, int& compared,
                    int& bits) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].id, b[i].id) << "token " << i;
    ASSERT_NEAR(a[i].logprob, b[i].logprob, 1e-4) << "token " << i;
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (std::size_t k = 0; k < a[i].top.size(); ++k) {
      ASSERT_EQ(a[i].top[k].first, b[i].top[k].first);
      ASSERT_NEAR(a[i].top[k].second, b[i].top[k].second, 1e-4);
    }
    ++compared;
    bits += std::memcmp(&a[i].logprob, &b[i].logprob, sizeof(float)) != 0;
  }
}

// With `invariant` no bit of a log-probability differs.
void compare(const std::string& name, const Outcome& expected, const Outcome& found, bool invariant) {
  SCOPED_TRACE(name);
  int compared = 0, bits = 0;
  ASSERT_EQ(expected.heard.size(), found.heard.size());
  for (std::size_t r = 0; r < expected.heard.size(); ++r) {
    SCOPED_TRACE("request " + std::to_string(r));
    RecordedEvents &a = *expected.heard[r], &b = *found.heard[r];
    ASSERT_EQ(a.reason(), b.reason()) << a.error << b.error;
    EXPECT_EQ(b.reason(), FinishReason::length) << b.error;
    EXPECT_EQ(b.ends, 1);
    EXPECT_EQ(a.prompts, b.prompts);
    EXPECT_EQ(a.usage.prompt_tokens, b.usage.prompt_tokens);
    EXPECT_EQ(a.usage.completion_tokens, b.usage.completion_tokens);
    EXPECT_EQ(b.usage.completion_tokens, static_cast<std::int64_t>(b.tokens.size()));
    compare_scores(a.prompt, b.prompt, compared, bits);
    compare_scores(a.tokens, b.tokens, compared, bits);
    if (testing::Test::HasFatalFailure()) return;
  }
  if (invariant) {
    EXPECT_EQ(bits, 0);
  }
  std::printf(
      "%s: the bits of %d of %d log-probabilities differ; %lld steps, %lld preemptions, %lld tokens cached\n",
      name.c_str(), bits, compared, static_cast<long long>(found.counters.steps),
      static_cast<long long>(found.counters.preemptions),
      static_cast<long long>(found.counters.cached_tokens));
}

Outcome one_by_one(TinyModel& model, const EngineOptions& options, const std::vector<Request>& requests) {
  Engine engine = model.engine(options);
  Outcome outcome;
  for (const Request& request : requests) {
    outcome.heard.push_back(send(engine, request));
    finish_all(engine);
  }
  outcome.counters = engine.counters();
  return outcome;
}

// Whether it is to be batch-invariant, as it is on the CPU unless it must not be.
class EngineBatches : public testing::TestWithParam<bool> {};

TEST_P(EngineBatches, GiveTheSameTokensWhateverElseRuns) {
  TinyModel model;
  const std::vector<Request> requests = mixed_requests(48);
  const bool invariant = GetParam();
  EXPECT_EQ(model.engine({.max_length = kLongest}).batch_dependence(), "");
  EngineOptions plain{.max_length = kLongest, .max_sequences = 8, .step_tokens = 64, .page_size = 8};
  if (!invariant) plain.batch_invariant = false;
  const auto with = [&](const auto& change) {
    EngineOptions options = plain;
    change(options);
    return options;
  };
  const Outcome alone = one_by_one(model, with([](auto& o) { o.prefix_cache = false; }), requests);
  EXPECT_EQ(alone.counters.cached_tokens, 0);
  compare("everything at once", alone, all_at_once(model, plain, requests), invariant);
  for (const std::int64_t budget : {4, 16})
    compare("a budget of " + std::to_string(budget), alone,
            all_at_once(model, with([&](auto& o) { o.step_tokens = budget; }), requests), invariant);
  const Outcome uncached = all_at_once(model, with([](auto& o) { o.prefix_cache = false; }), requests);
  compare("at once without a prefix cache", alone, uncached, invariant);
  EXPECT_EQ(uncached.counters.cached_tokens, 0);
  const Outcome cached = one_by_one(model, plain, requests);
  compare("one by one with a prefix cache", alone, cached, invariant);
  EXPECT_GT(cached.counters.cached_tokens, 0);
  for (const bool prefix_cache : {false, true}) {
    const Outcome tight = all_at_once(model, with([&](auto& o) {
                                        o.pages = 12;
                                        o.prefix_cache = prefix_cache;
                                      }),
                                      requests);
    compare("few pages", alone, tight, invariant);
    EXPECT_GT(tight.counters.preemptions, 0);
  }
}

// Guesses what it was told, with a wrong token now and then.
class Told : public trainer::Speculator {
 public:
  // By the tokens of the prompt: all that follow.
  std::map<std::vector<std::int32_t>, std::vector<std::int32_t>> texts;

  std::vector<std::vector<std::int32_t>> propose(std::span<const trainer::DraftRequest> requests,
                                                 std::int64_t budget) override {
    std::vector<std::vector<std::int32_t>> proposed;
    for (const trainer::DraftRequest& request : requests) {
      const auto prompt = request.tokens.first(static_cast<std::size_t>(request.prompt));
      const std::vector<std::int32_t>& text = texts.at({prompt.begin(), prompt.end()});
      std::vector<std::int32_t>& guess = proposed.emplace_back();
      for (std::size_t at = request.tokens.size() - prompt.size();
           at < text.size() && static_cast<std::int64_t>(guess.size()) < std::min(request.most, budget); ++at)
        guess.push_back(random() % 6 == 0 ? static_cast<std::int32_t>(random() % 256) : text[at]);
      budget -= static_cast<std::int64_t>(guess.size());
    }
    return proposed;
  }

 private:
  std::mt19937_64 random{3};
};

TEST_P(EngineBatches, GiveTheSameTokensWithSpeculation) {
  TinyModel model, other;
  other.poison(7);  // a draft model that cannot go on behind that token
  const std::vector<Request> requests = mixed_requests(48);
  const bool invariant = GetParam();
  EngineOptions plain{.max_length = kLongest, .max_sequences = 8, .step_tokens = 64, .page_size = 8};
  if (!invariant) plain.batch_invariant = false;
  const Outcome expected = one_by_one(model, plain, requests);
  Told told;
  for (std::size_t i = 0; i < requests.size(); ++i) told.texts[requests[i].prompt] = expected.heard[i]->ids();
  EngineOptions options = plain;
  options.draft_tokens = 7;
  const auto draft_model = [&](TinyModel& of) {
    return std::make_unique<trainer::DraftModel>(of.config, options, kLongest, *model.device,
                                                 inference_catalog(), of.weights);
  };
  for (const bool at_once : {false, true})
    for (const bool few_pages : {false, true}) {
      SCOPED_TRACE(std::string(at_once ? "at once" : "one by one") + (few_pages ? " with few pages" : ""));
      options.pages = few_pages ? 12 : 0;
      const auto run = [&](const char* name, std::unique_ptr<trainer::Speculator> speculator) {
        Engine engine = model.engine(options, std::move(speculator));
        Outcome outcome;
        for (const Request& request : requests) {
          outcome.heard.push_back(send(engine, request));
          if (!at_once) finish_all(engine);
        }
        finish_all(engine);
        outcome.counters = engine.counters();
        EXPECT_EQ(outcome.counters.pages_in_use, 0);
        compare(name, expected, outcome, invariant);
        std::printf("%s: %lld of %lld drafted tokens accepted\n", name,
                    static_cast<long long>(outcome.counters.accepted_tokens),
                    static_cast<long long>(outcome.counters.draft_tokens));
        EXPECT_LE(outcome.counters.accepted_tokens, outcome.counters.draft_tokens);
        return outcome.counters;
      };
      const EngineCounters by_told = run("a speculator that knows the text", std::make_unique<Told>(told));
      EXPECT_GT(by_told.accepted_tokens, by_told.draft_tokens / 2);
      EXPECT_LT(by_told.accepted_tokens, by_told.draft_tokens);
      if (!at_once) {
        EXPECT_LT(by_told.steps, expected.counters.steps * 2 / 3);
      }
      run("prompt lookup", nullptr);
      const EngineCounters by_itself = run("the model itself", draft_model(model));
      EXPECT_GT(by_itself.accepted_tokens, by_itself.draft_tokens * 9 / 10);
      run("another model", draft_model(other));
    }
}

// A draft model that cannot compute, as where memory is short.
TEST(Engine, WritesWithoutGuessesWhereTheyFail) {
  struct Failing : trainer::Speculator {
    int* calls;
    explicit Failing(int* count) : calls(count) {}
    std::vector<std::vector<std::int32_t>> propose(std::span<const trainer::DraftRequest>,
                                                   std::int64_t) override {
      ++*calls;
      throw hal::OutOfMemory("a draft model", "must have memory", "none");
    }
  };
  TinyModel model;
  const std::vector<Request> requests = mixed_requests(8);
  EngineOptions options{.max_length = kLongest, .max_sequences = 8, .step_tokens = 64, .page_size = 8};
  const Outcome expected = all_at_once(model, options, requests);
  options.draft_tokens = 3;
  int calls = 0;
  Engine engine = model.engine(options, std::make_unique<Failing>(&calls));
  Outcome outcome;
  for (const Request& request : requests) outcome.heard.push_back(send(engine, request));
  finish_all(engine);
  outcome.counters = engine.counters();
  compare("without guesses", expected, outcome, true);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(outcome.counters.draft_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Invariant, EngineBatches, testing::Bool());

TEST(Engine, IsBatchInvariantWhereTheKernelsCan) {
  {
    TinyModel model;
    trainer::KernelRuleConfig naive;
    naive.op = "matmul";
    naive.variant = std::string("naive");
    model.config.kernels.emplace_back(naive);
    EXPECT_THAT(model.engine({.max_length = kLongest, .step_tokens = 1}).batch_dependence(),
                HasSubstr("kernel rule op 'matmul'"));
  }
  for (const hal::BackendDevices& backend : inference_registry().enumerate()) {
    if (backend.devices.empty() || backend.backend == "null" || backend.backend == "cpu") continue;
    TinyModel model(backend.devices.front().id);
    EXPECT_THAT(model.engine({.max_length = kLongest, .step_tokens = 1}).batch_dependence(),
                HasSubstr("--batch-invariant asks for it"));
  }
}

TEST(Engine, WritesTheSameWithoutLogprobs) {
  TinyModel model;
  trainer::Engine engine = model.engine({.max_length = kLongest});
  Request request;
  request.prompt = random_tokens(9, 4);
  request.max_tokens = 12;
  const auto with = send(engine, request);
  request.logprobs = false;
  const auto without = send(engine, request);
  finish_all(engine);
  EXPECT_EQ(with->ids(), without->ids());
  EXPECT_LT(with->tokens.at(3).logprob, 0);
  EXPECT_EQ(without->tokens.at(3).logprob, 0);
}

TEST(Engine, WritesWhatTheGeneratorWrites) {
  TinyModel model;
  const std::unique_ptr<hal::Device> device = inference_registry().open("cpu");
  trainer::Generator generator(model.config, kLongest, 0, *device, inference_catalog(), model.weights);
  Engine engine = model.engine({.max_length = kLongest, .page_size = 8});
  for (const Request& request : mixed_requests(12)) {
    Request plain = request;
    plain.max_tokens =
        std::min<std::int64_t>(plain.max_tokens, kLongest - static_cast<std::int64_t>(plain.prompt.size()));
    if (plain.sampler.repetition_penalty != 1) plain.sampler = {.temperature = 1, .seed = 4};
    const std::shared_ptr<RecordedEvents> heard = send(engine, plain);
    finish_all(engine);
    std::vector<std::int32_t> text = plain.prompt;
    for (const std::int32_t id : heard->ids()) text.push_back(id);
    EXPECT_EQ(text, generator.generate({plain.prompt, {}}, plain.max_tokens, plain.sampler));
  }
}

TEST(Engine, GivesTheSameTokensOnEveryBackend) {
  std::vector<Request> requests = mixed_requests(14);
  const EngineOptions options{.max_length = kLongest,
                              .max_sequences = 4,
                              .step_tokens = 8,
                              .page_size = 8,
                              .pages = 9,
                              .batch_invariant = true};
  std::vector<std::vector<std::int32_t>> on_the_first;
  for (const hal::BackendDevices& backend : inference_registry().enumerate()) {
    if (backend.devices.empty() || backend.backend == "null") continue;
    SCOPED_TRACE(backend.devices.front().id);
    TinyModel model(backend.devices.front().id);
    Engine engine = model.engine(options);
    Outcome alone, together;
    for (const Request& request : requests) {
      alone.heard.push_back(send(engine, request));
      finish_all(engine);
    }
    for (const Request& request : requests) together.heard.push_back(send(engine, request));
    finish_all(engine);
    together.counters = engine.counters();
    EXPECT_GT(together.counters.preemptions, 0);
    EXPECT_EQ(engine.batch_dependence(), "");
    compare(backend.backend, alone, together, true);
    std::vector<std::vector<std::int32_t>> ids;
    for (const auto& heard : together.heard) ids.push_back(heard->ids());
    if (on_the_first.empty()) on_the_first = ids;
    EXPECT_EQ(ids, on_the_first);
  }
}

}  // namespace
}  // namespace meshloom::tests
