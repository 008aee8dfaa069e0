// Prompts in .jsonl files: the forms of a line, and what leaves no room for an answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hal/error.h"
#include "tests/trainer/data/examples.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/jsonl/jsonl_prompts.h"

namespace meshloom::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Of rows of 12 bytes: an answer has room for 4 tokens, a prompt for 8.
std::unique_ptr<Dataset> prompts(const std::string& lines, const std::string& too_long = "skip") {
  const tests::Scratch scratch;
  JsonlPromptsConfig config;
  config.max_completion_tokens = 4;
  config.too_long = too_long;
  config.eval_fraction = 0;
  return open(config, scratch.file("p.jsonl", lines), 12);
}

std::string refused_line(const std::string& line) {
  return message_of([&] { prompts(line + "\n"); });
}

TEST(Prompts, AreTextsOrMessages) {
  const auto data = prompts("{\"prompt\": \"ab\", \"answer\": 7}\n\n{\"prompt\": \"c\"}\n");
  EXPECT_TRUE(data->has_prompts());
  ASSERT_EQ(data->examples(), 2);
  EXPECT_EQ(text_of(data->example(0).tokens), "ab");
  EXPECT_EQ(text_of(data->example(1).tokens), "c");
  EXPECT_EQ(data->line(0), "{\"prompt\": \"ab\", \"answer\": 7}");
  EXPECT_THAT(data->target_format().ends, ElementsAre(0));
  EXPECT_EQ(data->train(8, 0)->rows_per_epoch(), 16);
  EXPECT_THAT(message_of([&] { data->train(8, 0)->rows(0, 0, 1); }), HasSubstr("meshloom train --reward"));
}

TEST(Prompts, OfMessagesEndWhereTheAnswerBegins) {
  const tests::Scratch scratch;
  JsonlPromptsConfig config;
  config.eval_fraction = 0;
  const auto data = open(config,
                         scratch.file("p.jsonl", R"({"prompt": [{"role": "user", "content": "U"}]})"
                                                 "\n"),
                         64);
  EXPECT_EQ(text_of(data->example(0).tokens), "<|user|>\nU\n<|assistant|>\n");
  EXPECT_THAT(data->notes(), ElementsAre(HasSubstr("no chat template")));
}

TEST(Prompts, WithoutRoomAreLeftOutCutOrRefused) {
  const std::string lines = "{\"prompt\": \"12345678\"}\n{\"prompt\": \"123456789\"}\n";
  const auto skipped = prompts(lines), cut = prompts(lines, "cut");
  EXPECT_EQ(skipped->examples(), 1);
  EXPECT_THAT(
      skipped->notes(),
      ElementsAre(
          "1 of the prompts had more than sequence - max_completion_tokens = 8 tokens and were left out"));
  EXPECT_EQ(text_of(cut->example(1).tokens), "23456789");
  EXPECT_THAT(message_of([&] { prompts(lines, "refuse"); }),
              HasSubstr("p.jsonl', line 2: an example must have at most"));
  EXPECT_THAT(refused_line(R"({"prompt": "123456789"})"), HasSubstr("must hold at least one example"));
}

// They are behind those that are trained on, from the same file or from one of their own.
TEST(Prompts, AreHeldOut) {
  const tests::Scratch scratch;
  const auto file = [&](const std::string& name, const std::string& texts) {
    std::string lines;
    for (const char text : texts) lines += std::string("{\"prompt\": \"") + text + "\"}\n";
    return scratch.file(name, lines);
  };
  const auto text = [](const Dataset& data, std::int64_t index) {
    return text_of(data.example(index).tokens);
  };
  JsonlPromptsConfig config;
  config.eval_fraction = 0.4;
  const std::string five = file("five.jsonl", "abcde");
  const auto parts = open(config, five, 12);
  EXPECT_EQ(parts->examples(), 3);
  EXPECT_EQ(parts->eval_prompts(), 2);
  EXPECT_EQ(text(*parts, 2) + text(*parts, 3) + text(*parts, 4), "cde");
  EXPECT_EQ(parts->line(4), "{\"prompt\": \"e\"}");
  EXPECT_EQ(text_of(parts->prompt(8).tokens), "d");
  EXPECT_EQ(parts->train_tokens(), 3);
  EXPECT_EQ(parts->eval_tokens(), 2);
  config.eval_files = {file("two.jsonl", "xy")};
  const auto files = open(config, five, 12);
  EXPECT_EQ(files->examples(), 5);
  EXPECT_EQ(files->eval_prompts(), 2);
  EXPECT_EQ(text(*files, 4) + text(*files, 5) + text(*files, 6), "exy");
  EXPECT_NE(files->fingerprint(), parts->fingerprint());
  config.eval_files.clear();
  EXPECT_THAT(message_of([&] { open(config, file("one.jsonl", "a"), 12); }),
              HasSubstr("must hold at least two examples, one of them to hold out; input.eval_fraction=0"));
}

TEST(Prompts, SayWhatIsWrong) {
  EXPECT_THAT(refused_line(R"({"question": "a"})"), HasSubstr("line 1: a line must have a member 'prompt'"));
  EXPECT_THAT(refused_line(R"({"prompt": 7})"), HasSubstr("must be a text or a list of messages; found '7'"));
  EXPECT_THAT(refused_line(R"({"prompt": ""})"), HasSubstr("must have at least one token"));
  EXPECT_THAT(refused_line("{\"prompt\": \"a\"}\n7"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(refused_line(R"({"prompt": []})"), HasSubstr("at least one"));
  EXPECT_THAT(refused_line(R"({"prompt": [{"role": "assistant", "content": "A"}]})"),
              HasSubstr("the last message must not be an assistant's"));
}

TEST(Prompts, FieldsAreChecked) {
  JsonlPromptsConfig config;
  config.completions_per_prompt = 1;
  EXPECT_THAT(message_of([&] { config.check(); }),
              HasSubstr("input.completions_per_prompt: must be at least 2"));
  config = {};
  config.eval_temperature = -1;
  EXPECT_THAT(message_of([&] { config.check(); }), HasSubstr("input.eval_temperature: must be at least 0"));
  config = {};
  EXPECT_EQ(config.completion_tokens(64), 32);
  config.max_completion_tokens = 64;
  EXPECT_THAT(message_of([&] { config.completion_tokens(64); }), HasSubstr("must be below the sequence, 64"));
}

}  // namespace
}  // namespace meshloom::trainer
