// Embeddings of texts: which hidden states they are made of, and that their bits depend on nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hal/error.h"
#include "tests/trainer/inference/support.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::EngineOptions;
using trainer::Pooling;
using trainer::Request;
using Tokens = std::vector<std::int32_t>;

Request embedding_of(Tokens tokens) {
  Request request;
  request.prompt = std::move(tokens);
  request.max_tokens = 0;
  request.embed = true;
  return request;
}

EngineOptions with(Pooling pooling, std::int64_t step_tokens = 64) {
  return {
      .max_length = 64, .max_sequences = 4, .step_tokens = step_tokens, .page_size = 4, .pooling = pooling};
}

std::vector<float> embed(trainer::Engine& engine, const Tokens& tokens) {
  const auto events = send(engine, embedding_of(tokens));
  finish_all(engine);
  EXPECT_EQ(events->reason(), trainer::FinishReason::stop) << events->error;
  EXPECT_EQ(static_cast<std::int64_t>(events->embedding.size()), engine.embedding_size());
  return events->embedding;
}

// The products of the head's weight and the hidden state are the logits.
TEST(Embedding, IsWhatTheHeadReads) {
  TinyModel model;
  trainer::Engine engine = model.engine(with(Pooling::last));
  const Tokens tokens = random_tokens(13, 1);
  const std::vector<float> hidden = embed(engine, tokens);
  Request scored;
  scored.prompt = tokens;
  scored.max_tokens = 1;
  scored.top = static_cast<int>(engine.vocabulary());
  const auto events = send(engine, scored);
  finish_all(engine);
  std::vector<double> wanted(static_cast<std::size_t>(engine.vocabulary()));
  for (const auto& [id, logprob] : events->tokens.at(0).top) wanted[static_cast<std::size_t>(id)] = logprob;
  std::vector<float> table;
  for (const auto& parameter :
       layers::trace_logits(*model.config.model, inference_catalog(), 1, 1).parameters)
    if (parameter.path == "decoder/head/weight") {
      table.resize(static_cast<std::size_t>(parameter.type.elements()));
      parameter.initialize(5, table.data());
    }
  ASSERT_EQ(table.size(), wanted.size() * hidden.size());
  const auto logit = [&](std::size_t id) {
    double sum = 0;
    for (std::size_t i = 0; i < hidden.size(); ++i) sum += 3.0 * table[id * hidden.size() + i] * hidden[i];
    return sum;
  };
  for (std::size_t id = 1; id < wanted.size(); ++id)
    EXPECT_NEAR(logit(id) - logit(0), wanted[id] - wanted[0], 2e-4) << id;
}

TEST(Embedding, IsTheMeanOfAllTokens) {
  TinyModel model;
  trainer::Engine last = model.engine(with(Pooling::last)), mean = model.engine(with(Pooling::mean));
  const Tokens tokens = random_tokens(13, 2);
  std::vector<double> sums(static_cast<std::size_t>(last.embedding_size()));
  for (std::size_t count = 1; count <= tokens.size(); ++count) {
    const std::vector<float> hidden =
        embed(last, Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += hidden[i];
  }
  std::vector<float> wanted;
  for (const double sum : sums)
    wanted.push_back(static_cast<float>(sum / static_cast<double>(tokens.size())));
  EXPECT_EQ(embed(mean, tokens), wanted) << "to the bit";
}

TEST(Embedding, HasTheSameBitsWhateverSharesTheSteps) {
  for (const Pooling pooling : {Pooling::last, Pooling::mean}) {
    TinyModel model;
    trainer::Engine alone = model.engine(with(pooling));
    ASSERT_EQ(alone.batch_dependence(), "");
    std::vector<Tokens> texts;
    std::vector<std::vector<float>> wanted;
    for (std::uint64_t i = 0; i < 9; ++i) {
      texts.push_back(random_tokens(1 + 6 * static_cast<std::int64_t>(i), i));
      // Some begin alike, and are found in the prefix cache.
      if (i > 5) std::copy_n(texts[5].begin(), 20, texts.back().begin());
    }
    for (const Tokens& text : texts) wanted.push_back(embed(alone, text));
    std::vector<EngineOptions> all{with(pooling), with(pooling, 5), with(pooling, 16)};
    all.push_back(with(pooling, 16));
    all.back().pages = 16;  // of one text: others are preempted
    all.push_back(with(pooling, 16));
    all.back().prefix_cache = false;
    for (const EngineOptions& options : all) {
      trainer::Engine engine = model.engine(options);
      std::vector<std::shared_ptr<RecordedEvents>> events;
      for (std::size_t i = 0; i < texts.size(); ++i) {
        Request other;
        other.prompt = random_tokens(9, 100 + i);
        other.max_tokens = 12;
        send(engine, other);
        events.push_back(send(engine, embedding_of(texts[i])));
      }
      finish_all(engine);
      for (std::size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(events[i]->embedding, wanted[i]) << i;
        EXPECT_EQ(events[i]->ends, 1);
        EXPECT_TRUE(events[i]->tokens.empty());
      }
    }
  }
}

TEST(Embedding, UsesThePrefixCacheWhereItCan) {
  TinyModel model;
  const Tokens tokens = random_tokens(13, 3);
  for (const Pooling pooling : {Pooling::last, Pooling::mean}) {
    trainer::Engine engine = model.engine(with(pooling));
    embed(engine, tokens);
    const auto events = send(engine, embedding_of(tokens));
    finish_all(engine);
    EXPECT_EQ(events->usage.cached_tokens, pooling == Pooling::last ? 12 : 0);
    EXPECT_EQ(events->usage.prompt_tokens, 13);
    EXPECT_EQ(events->usage.completion_tokens, 0);
  }
}

TEST(Embedding, IsRefusedWhereThereIsNone) {
  TinyModel model;
  const auto refused = [](trainer::Engine& engine, const Request& request, const std::string& message) {
    try {
      send(engine, request);
      FAIL() << message;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  };
  trainer::Engine none = model.engine(with(Pooling::none)), last = model.engine(with(Pooling::last));
  refused(none, embedding_of({1}), "pooling");
  Request request = embedding_of({1});
  request.max_tokens = 1;
  refused(last, request, "neither tokens nor scores");
  request = embedding_of({1});
  request.score_prompt = true;
  refused(last, request, "neither tokens nor scores");
  refused(last, embedding_of({}), "at least one token");
}

TEST(Embedding, MustBeFinite) {
  TinyModel model;
  model.poison(7);
  trainer::Engine engine = model.engine(with(Pooling::mean));
  const auto events = send(engine, embedding_of({1, 7, 2}));
  const auto fine = send(engine, embedding_of({1, 2}));
  finish_all(engine);
  EXPECT_EQ(events->reason(), trainer::FinishReason::error);
  EXPECT_THAT(events->error, HasSubstr("finite"));
  EXPECT_EQ(fine->reason(), trainer::FinishReason::stop);
}

}  // namespace
}  // namespace meshloom::tests
