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
  config.eval_files = {"a"};
  EXPECT_THAT(message_of([&] { config.check(); }), HasSubstr("input.eval_files: must be empty"));
  config = {};
  EXPECT_EQ(config.completion_tokens(64), 32);
  config.max_completion_tokens = 64;
  EXPECT_THAT(message_of([&] { config.completion_tokens(64); }), HasSubstr("must be below the sequence, 64"));
}

}  // namespace
}  // namespace meshloom::trainer
