// Runs of a model with an encoder: rows of prompt and completion, training, and every command on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "layers/config/tree.h"
#include "tests/trainer/data/examples.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/jsonl/jsonl_pairs.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Dataset> open(JsonlPairsConfig config, const std::string& file) {
  return open(config, file, 6);
}

JsonlPairsConfig all_pairs() {
  JsonlPairsConfig config;
  config.eval_fraction = 0;
  config.shuffle = config.pack = false;
  return config;
}

std::string pair(const std::string& prompt, const std::string& completion) {
  return nlohmann::json{{"prompt", prompt}, {"completion", completion}}.dump() + "\n";
}

TEST(Pairs, ARowIsOne) {
  const tests::Scratch scratch;
  JsonlPairsConfig config = all_pairs();
  config.source_sequence = 5;
  const auto data = open(config, scratch.file("a.jsonl", pair("abc", "xy") + pair("", "z")));
  const auto batches = data->train(2, 1);
  EXPECT_EQ(batches->rows_per_epoch(), 2);
  const Batch batch = batches->rows(0, 0, 2);
  EXPECT_EQ(text_of(batch.tokens), "$xy$$$$z$$$$");
  EXPECT_EQ(text_of(batch.targets), "xy$...z$....");
  EXPECT_THAT(batch.segments, ElementsAre(1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0));
  EXPECT_EQ(text_of(batch.source), "abc$$$$$$$");
  EXPECT_THAT(batch.source_segments, ElementsAre(1, 1, 1, 1, 0, 1, 0, 0, 0, 0));
  EXPECT_THAT(batch.source_positions, ElementsAre(0, 1, 2, 3, 0, 0, 0, 0, 0, 0));
  const Prompt prompt = data->prompt(32);
  EXPECT_EQ(text_of(prompt.source), "abc$");
  EXPECT_EQ(text_of(prompt.tokens), "$");
  config.end_of_text = false;
  const Batch open_ended =
      open(config, scratch.file("b.jsonl", pair("abc", "xy")), 3)->train(1, 1)->rows(0, 0, 1);
  EXPECT_EQ(text_of(open_ended.source) + " " + text_of(open_ended.targets), "abc$$ xy.");
}

TEST(Pairs, ShareARowWhileBothSidesFit) {
  const tests::Scratch scratch;
  JsonlPairsConfig config = all_pairs();
  config.pack = true;
  config.source_sequence = 8;
  const std::string file = scratch.file("a.jsonl", pair("abc", "xy") + pair("d", "z") + pair("efg", "vw"));
  const auto data = open(config, file);
  const auto batches = data->train(2, 1);
  ASSERT_EQ(batches->rows_per_epoch(), 2);
  const Batch batch = batches->rows(0, 0, 2);
  EXPECT_EQ(text_of(batch.tokens), "$xy$vw$z$$$$");
  EXPECT_EQ(text_of(batch.targets), "xy$vw$z$....");
  EXPECT_THAT(batch.segments, ElementsAre(1, 1, 1, 2, 2, 2, 1, 1, 0, 0, 0, 0));
  EXPECT_EQ(text_of(batch.source), "abc$efg$d$$$$$$$");
  EXPECT_THAT(batch.source_segments, ElementsAre(1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.source_positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0, 0, 0, 0, 0, 0));
  config.source_sequence = 4;  // now the sources do not fit
  EXPECT_EQ(open(config, file)->train(2, 1)->rows_per_epoch(), 3);
}

TEST(Pairs, LongOnesAreCutAsTheRuleSays) {
  const tests::Scratch scratch;
  const std::string file = scratch.file("a.jsonl", pair("abcdefgh", "uvwxyz") + pair("a", "b"));
  JsonlPairsConfig config = all_pairs();
  const auto data = open(config, file, 4);
  const Batch batch = data->train(1, 1)->rows(0, 0, 1);
  EXPECT_EQ(text_of(batch.source), "abc$");
  EXPECT_EQ(text_of(batch.targets), "uvwx");
  EXPECT_THAT(data->notes(),
              ElementsAre("1 of the examples had more than 4 tokens in the prompt or sequence + 1 = 5 in "
                          "the completion and were cut"));
  config.too_long = "skip";
  EXPECT_EQ(open(config, file, 4)->train(1, 1)->rows_per_epoch(), 1);
  config.too_long = "refuse";
  EXPECT_THAT(message_of([&] { open(config, file, 4); }),
              HasSubstr("line 1: an example must have at most 4 tokens in the prompt or sequence + 1 = 5 in "
                        "the completion; "
                        "--set input.too_long=cut or skip accepts longer ones; found 8 tokens in the "
                        "completion, 9 in the prompt"));
}

TEST(Pairs, BadLinesAndFieldsAreNamed) {
  const tests::Scratch scratch;
  const auto error = [&](const std::string& text, const JsonlPairsConfig& config = all_pairs()) {
    const std::string file = scratch.file("bad.jsonl", text);
    return message_of([&] { open(config, file); });
  };
  EXPECT_THAT(error(pair("a", "b") + "{\"text\": \"c\"}"),
              HasSubstr("line 2: a line must have 'prompt' and 'completion'; found members 'text'"));
  EXPECT_THAT(error("{\"prompt\": \"a\"}"), HasSubstr("must have a member 'completion'"));
  EXPECT_THAT(error(""), HasSubstr("must hold at least one example"));
  JsonlPairsConfig config = all_pairs();
  config.prompt = "";
  EXPECT_THAT(error(pair("a", "b"), config), HasSubstr("prompt and completion must both be named"));
  config = all_pairs();
  config.source_sequence = 0;
  EXPECT_THAT(error(pair("a", "b"), config), HasSubstr("input.source_sequence: must be at least 1"));
  config = all_pairs();
  config.end_of_text = false;
  EXPECT_THAT(error(pair("", "b"), config), HasSubstr("a prompt must have at least one token"));
}

TEST(Pairs, AModelAndItsInputGoTogether) {
  const layers::ClassTable classes = recipe_classes();
  TrainerConfig config = tiny_pairs();
  layers::set(config, "input", "TextFiles{}", classes);
  EXPECT_EQ(message_of([&] { config.check(); }),
            "input: must have sources for the model's encoder, such as JsonlPairs; found 'TextFiles'");
  config = tiny();
  layers::set(config, "input", "JsonlPairs{}", classes);
  EXPECT_THAT(message_of([&] { config.check(); }), HasSubstr("only a model with an encoder reads them"));
  config = tiny_pairs();
  layers::set(config, "model.encoder.positions", "LearnedPosition{max_length=16}", classes);
  EXPECT_THAT(message_of([&] { config.check(); }), HasSubstr("at most the encoder's 16 positions"));
  layers::set(config, "input.source_sequence", "16", classes);
  EXPECT_EQ(message_of([&] { config.check(); }), "no error");
}

// Words of few letters, and the same backwards.
std::string reversals(int count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (int i = 0; i < count; ++i) {
    std::string word(3 + random() % 4, ' ');
    for (char& c : word) c = static_cast<char>('a' + random() % 8);
    text += pair(word, std::string(word.rbegin(), word.rend()));
  }
  return text;
}

std::vector<nlohmann::json> records(const std::string& run) {
  std::vector<nlohmann::json> all;
  std::istringstream text(tests::read_text(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

class PairsRun : public testing::Test {
 protected:
  tests::Outcome run(const std::string& arguments) { return tests::meshloom(arguments); }
  std::string train(const std::string& out, const std::string& more) {
    const tests::Outcome outcome = run("train tiny-pairs --device cpu --set sequence=8 --data " + data +
                                       " --out " + scratch.path(out) + " " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }

  int edits = 0;
  tests::Scratch scratch;
  std::string data = scratch.file("words.jsonl", reversals(2000, 1));
};

// Without the source a letter of a word is a guess of ln 8 = 2.08 nats, and its end a guess as well.
TEST_F(PairsRun, LearnsWhatOnlyTheSourceKnows) {
  const std::string out = train("run", "--sample 8 --set learner.schedule.total_steps=250 --steps 250");
  EXPECT_THAT(out, HasSubstr("sample (prompt | completion):"));
  EXPECT_LT(records(scratch.path("run")).back()["eval_loss"].get<double>(), 0.7);
  // The checkpoint is served as it was trained: nothing of the prompt but what the decoder made of it.
  const std::string generate =
      "generate --device cpu --temperature 0 --tokens 8 --checkpoint " + scratch.path("run");
  const tests::Outcome said = run(generate + " --prompt abc"), again = run(generate + " --prompt abc --json"),
                       longer = run(generate + " --prompt abcabcabcabc");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "cba\n");
  const nlohmann::json json = nlohmann::json::parse(again.out);
  EXPECT_EQ(json["prompt"], "abc");
  EXPECT_EQ(json["tokens"], (std::vector<int>{'c', 'b', 'a', 0}));
  EXPECT_EQ(longer.code, 0) << longer.err;
  EXPECT_THAT(longer.err, HasSubstr("the prompt has 13 tokens; this model was trained on at most 8"));
  const tests::Outcome exported =
      run("export --checkpoint " + scratch.path("run") + " --out " + scratch.path("hf"));
  EXPECT_EQ(exported.code, 1);
  EXPECT_THAT(exported.err, HasSubstr("a model with an encoder cannot be written for transformers yet"));
}

TEST_F(PairsRun, ResumesToTheSameBitsAndAccumulates) {
  const std::string common = "--set checkpoint_every=5 --set eval_batches=1 --sample 0 ";
  train("whole", common + "--steps 10");
  train("halves", common + "--steps 5");
  train("halves", common + "--steps 10 --resume");
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(tests::read_text(scratch.path("whole/step-00000010/") + file),
              tests::read_text(scratch.path("halves/step-00000010/") + file));
  train("parts", common + "--steps 10 --set accumulation=4");
  const auto whole = records(scratch.path("whole")), parts = records(scratch.path("parts"));
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const double loss = whole[i]["loss"].get<double>();
    EXPECT_NEAR(parts[i]["loss"].get<double>(), loss, 1e-4 * loss);
    EXPECT_GT(whole[i]["packing_efficiency"].get<double>(), 0.4);
  }
}

TEST_F(PairsRun, EveryEditIsOneLine) {
  for (const char* edit :
       {"--replace 'FeedForward=MoE{num_experts=4}'", "--modify 'Adapt{with=Lora{rank=2}}'",
        "--modify 'Adapt{with=Dora{rank=2} where=\"**.cross_attention.{q,v}_proj\"}'",
        "--modify 'Quantize{with=\"QuantizedLinear{product=Int8Product{}}\"}'",
        "--replace 'RMSNorm=LayerNorm{}'", "--replace 'TransformerLayer=PostNormLayer{}'",
        "--replace 'TransformerLayer=HybridNormLayer{}'",
        "--modify 'Wrap{where=\"**.{attention,cross_attention,feed_forward}\" with=Dropout{} slot=base}'",
        "--set model.decoder.stack.layer.cross_attention.dropout=0.1 --set dtype=bf16",
        "--replace 'CrossEntropy=ChunkedLoss{chunk_size=32}'"}) {
    const std::string out = "edit" + std::to_string(++edits);
    train(out, std::string("--steps 2 --set eval_batches=0 --sample 0 ") + edit);
    EXPECT_EQ(records(scratch.path(out)).size(), 2u) << edit;
  }
}

TEST_F(PairsRun, CommandsThatNeedNoRun) {
  const tests::Outcome plan = run("plan tiny-pairs --device null --as h100 --set input.source_sequence=48");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("16 x 32 tokens from sources of 48,"));
  const tests::Outcome text = tests::meshloom("train tiny-pairs --device cpu --out " + scratch.path("text") +
                                              " --data " + scratch.file("plain.txt", "some words"));
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.err, HasSubstr("plain.txt', line 1: the line must be JSON"));
}

}  // namespace
}  // namespace meshloom::trainer
