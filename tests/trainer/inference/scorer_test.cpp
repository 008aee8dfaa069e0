// A text that is computed at once, without caches, has the scores that the engine gives it, bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "tests/trainer/inference/support.h"
#include "trainer/inference/model_runner.h"
#include "trainer/inference/scorer.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::Scorer;
using trainer::TokenScore;

constexpr std::int64_t kLength = 300;  // several tiles of keys

trainer::Request scored(std::vector<std::int32_t> prompt, std::int64_t tokens) {
  trainer::Request request;
  request.prompt = std::move(prompt);
  request.score_prompt = true;
  request.top = 3;
  request.max_tokens = tokens;
  return request;
}

// What the engine says of a text that it has partly read and partly written, and the text.
std::pair<std::vector<TokenScore>, std::vector<std::int32_t>> engine_scores(TinyModel& model,
                                                                            std::int64_t prompt) {
  trainer::Engine engine =
      model.engine({.max_length = kLength, .max_sequences = 3, .step_tokens = 40, .page_size = 16});
  const auto other = send(engine, scored(random_tokens(50, 9), 30)),
             heard = send(engine, scored(random_tokens(prompt, 4), kLength - prompt));
  finish_all(engine);
  EXPECT_EQ(engine.batch_dependence(), "");
  std::vector<TokenScore> scores = heard->prompt;
  scores.insert(scores.end(), heard->tokens.begin(), heard->tokens.end());
  std::vector<std::int32_t> text = random_tokens(prompt, 4);
  for (const std::int32_t id : heard->ids()) text.push_back(id);
  return {scores, text};
}

void expect_same(const std::vector<TokenScore>& found, const std::vector<TokenScore>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].id, expected[i].id) << i;
    ASSERT_EQ(found[i].logprob, expected[i].logprob) << i;
    ASSERT_EQ(found[i].top, expected[i].top) << i;
  }
}

TEST(ScorerBits, AreThoseOfTheEngine) {
  const layers::ClassTable classes = trainer::recipe_classes();
  for (const auto& [field, value] : {std::pair{"num_kv_heads", "1"},
                                     {"num_kv_heads", "4"},
                                     {"soft_cap", "5"},
                                     {"distance_bias", "Alibi{}"},
                                     {"mask", "SlidingWindow{window=130}"}}) {
    SCOPED_TRACE(field);
    TinyModel model;
    layers::set(model.config, std::string("model.decoder.stack.layer.attention.") + field, value, classes);
    model.initialize(7);
    const auto [expected, text] = engine_scores(model, 200);
    Scorer scorer(model.config, kLength, *model.device, inference_catalog(), model.weights);
    EXPECT_EQ(scorer.batch_dependence(), "");
    expect_same(scorer.score(text, kLength, 3), expected);
  }
}

TEST(ScorerBits, OfABeginningAreThoseOfTheWhole) {
  TinyModel model;
  const auto [expected, text] = engine_scores(model, 100);
  for (const std::int64_t length : {2, 5, 95, 96, 97, 193, 290}) {
    Scorer scorer(model.config, length, *model.device, inference_catalog(), model.weights);
    const std::vector<TokenScore> found =
        scorer.score(std::span(text).first(static_cast<std::size_t>(length)), length, 3);
    expect_same(found, {expected.begin(), expected.begin() + length - 1});
  }
}

std::vector<float> logits(TinyModel& model, std::int64_t length, const trainer::ComposeOptions& options) {
  trainer::Session session(
      *model.device, inference_catalog(),
      trainer::compose_inference(*model.config.model, options, inference_catalog(), model.device->info()));
  trainer::load_parameters(model.weights, session);
  const std::vector<std::int32_t> tokens = random_tokens(length, 4);
  session.write("logits/tokens", std::as_bytes(std::span(tokens)));
  session.run(trainer::Step::logits);
  std::vector<float> result(static_cast<std::size_t>(length * layers::vocabulary(*model.config.model)));
  session.read("logits", std::as_writable_bytes(std::span(result)));
  return result;
}

// The kernels that training takes, but for its matrix products, have the bits of those that score.
TEST(ScorerBits, AreThoseOfTheKernelsThatTrainWithProductsByRows) {
  TinyModel model;
  for (const std::int64_t length : {32, 100, 300}) {
    trainer::ComposeOptions options = trainer::inference_options(model.config);
    options.logits_batch = 1;
    options.sequence = options.logits_sequence = length;
    trainer::ComposeOptions exact = options;
    exact.logits_row_exact = true;
    options.kernels.push_back({.op = "matmul", .variant = "rows"});
    EXPECT_EQ(logits(model, length, exact), logits(model, length, options)) << length;
  }
}

TEST(Scorer, ReadsLongTextsInWindows) {
  TinyModel model;
  const std::vector<std::int32_t> text = random_tokens(40, 3);
  Scorer window(model.config, 16, *model.device, inference_catalog(), model.weights);
  std::vector<std::int64_t> done;
  const std::vector<TokenScore> found =
      window.score(text, 10, 0, [&](std::int64_t tokens) { done.push_back(tokens); });
  ASSERT_EQ(found.size(), 39u);
  EXPECT_EQ(done, (std::vector<std::int64_t>{16, 26, 36, 40}));
  // The last window is the text's end: it has 15 tokens in front of the last one.
  for (const auto& [begin, first] : {std::pair{0, 1}, {10, 16}, {20, 26}, {24, 36}}) {
    const std::vector<TokenScore> alone =
        window.score(std::span(text).subspan(static_cast<std::size_t>(begin), 16), 16, 0);
    for (int i = first; i < begin + 16; ++i)
      EXPECT_EQ(found[static_cast<std::size_t>(i - 1)].logprob,
                alone[static_cast<std::size_t>(i - begin - 1)].logprob)
          << i;
  }
  EXPECT_THAT(message_of([&] { window.score(std::span(text).first(15), 16, 0); }),
              HasSubstr("must have at least 16 tokens; found 15"));
  std::vector<std::int32_t> bad = random_tokens(16, 1);
  bad[3] = 256;
  EXPECT_THAT(message_of([&] { window.score(bad, 16, 0); }),
              HasSubstr("below the model's vocabulary of 256"));
}

}  // namespace
}  // namespace meshloom::tests
