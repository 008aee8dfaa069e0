// Conversations: a model's own chat template from import over training and generation to export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/message_of.h"
#include "tests/trainer/interop/chat_model.h"
#include "tests/trainer/interop/support.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/data/jsonl/chat_format.h"
#include "trainer/data/jsonl/jsonl_files.h"

namespace meshloom::tests {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

const std::string kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const std::string kOne =
    R"({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"}]})";
const std::string kTwo =
    R"({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"}, )"
    R"({"role": "user", "content": "x"}, {"role": "assistant", "content": "y z"}]})";

class Chat : public testing::Test {
 protected:
  Chat() { chat_model(scratch_, "hf", {{"eos_token_id", kEnd}}); }

  void settings(const Json& json) { scratch_.file("hf/tokenizer_config.json", json.dump()); }
  std::string imported() {
    notes_.clear();
    run_ = scratch_.path("run" + std::to_string(++count_));
    return checkpoint_ = import_quietly(scratch_.path("hf"), run_, &notes_).checkpoint;
  }
  // The lines of a file as the recipe of the import trains on them, its files read where the checkpoint has
  // them.
  std::unique_ptr<trainer::Dataset> open(const std::string& lines) {
    recipe_ = trainer::recipe_of(trainer::open_newest(run_, [](const std::string&) {}), classes());
    trainer::JsonlFilesConfig input;
    input.tokenizer = recipe_.input->tokenizer;
    input.eval_fraction = 0;
    input.files = {scratch_.file("chats.jsonl", lines)};
    tokenizer_ = input.tokenizer->make();
    return input.open(*tokenizer_, 61, 400);
  }
  // The tokens of an example, with the trained ones between "[[" and "]]".
  std::string marked(const trainer::Example& example) const {
    std::string text;
    bool inside = false;
    for (std::size_t i = 0; i < example.tokens.size(); ++i) {
      if (inside != (example.loss_mask[i] != 0)) text += inside ? "]]" : "[[";
      inside = example.loss_mask[i] != 0;
      text += tokenizer_->token(example.tokens[i]);
    }
    return text + (inside ? "]]" : "");
  }

  Scratch scratch_;
  std::vector<std::string> notes_;
  std::string run_, checkpoint_;
  trainer::TrainerConfig recipe_;
  std::unique_ptr<trainer::Tokenizer> tokenizer_;
  int count_ = 0;
};

TEST_F(Chat, TheModelsTemplateIsKeptAndLearned) {
  settings({{"eos_token", "</s>"}, {"chat_template", kChatMl}});
  imported();
  EXPECT_THAT(notes_, IsEmpty());
  EXPECT_EQ(read_text(checkpoint_ + "/chat_template.jinja"), kChatMl);
  EXPECT_FALSE(Json::parse(read_text(checkpoint_ + "/tokenizer_config.json")).contains("chat_template"));
  const auto data = open(kTwo);
  EXPECT_EQ(marked(data->example(0)),
            "<|im_start|>userĊab<|im_end|>Ċ<|im_start|>assistantĊ[[cd<|im_end|>]]Ċ"
            "<|im_start|>userĊx<|im_end|>Ċ<|im_start|>assistantĊ[[yĠz<|im_end|>]]Ċ");
  EXPECT_THAT(data->target_format().ends, ElementsAre(kTurnEnd));  // and not the tokenizer's eos_token
  EXPECT_THAT(data->notes(), IsEmpty());
}

TEST_F(Chat, AFileOfItsOwnCountsBeforeTheSettings) {
  settings({{"chat_template",
             {{{"name", "default"}, {"template", kChatMl}}, {{"name", "tool_use"}, {"template", "t"}}}}});
  imported();
  EXPECT_EQ(read_text(checkpoint_ + "/chat_template.jinja"), kChatMl);
  EXPECT_THAT(notes_, Contains(HasSubstr("only the default chat template is imported, not tool_use")));
  scratch_.file("hf/chat_template.jinja",
                "{{ messages[0].content }}{{ messages[1].content }}{{ eos_token }}");
  settings({{"eos_token", {{"content", "<|im_end|>"}}}, {"chat_template", kChatMl}});
  imported();
  const auto data = open(kOne);
  EXPECT_EQ(marked(data->example(0)), "ab[[cd<|im_end|>]]");
}

// A template that cannot be run is an error for messages, which names it, but not for prompts with
// completions.
TEST_F(Chat, ATemplateThatCannotRunIsRefusedForMessagesOnly) {
  settings({{"eos_token", "</s>"}, {"chat_template", "{% include 'other' %}"}});
  imported();
  EXPECT_EQ(open(R"({"prompt": "ab", "completion": "cd"})")->examples(), 1);
  const std::string error = message_of([&] { open(kOne); });
  EXPECT_THAT(error, HasSubstr("chat_template.jinja"));
  EXPECT_THAT(error, HasSubstr("include"));
  settings({{"eos_token", "</s>"}, {"chat_template", "{{ raise_exception('no such roles') }}"}});
  imported();
  EXPECT_THAT(message_of([&] { open(kOne); }),
              testing::AllOf(HasSubstr("chats.jsonl', line 1, messages"), HasSubstr("no such roles")));
}

TEST_F(Chat, AnAnswerWithoutAnEndIsSaid) {
  settings({{"eos_token", "</s>"},
            {"chat_template",
             "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
             "{% if add_generation_prompt %}assistant: {% endif %}"}});
  imported();
  const auto data = open(kOne);
  EXPECT_THAT(data->notes(), ElementsAre(HasSubstr("ends an answer with no special token")));
  EXPECT_THAT(data->target_format().ends, IsEmpty());
}

TEST_F(Chat, TrainsGeneratesAndExports) {
  settings({{"eos_token", "</s>"}, {"chat_template", kChatMl}});
  scratch_.file("hf/generation_config.json", R"({"eos_token_id": 1, "top_p": 0.9})");
  imported();
  const std::string lines = scratch_.file("lines.jsonl", kOne + "\n" + kOne + "\n" + kOne + "\n"),
                    tuned = scratch_.path("tuned");
  Outcome outcome = meshloom(
      "train --device cpu --sample 0 --steps 60 --set sequence=64 --set input.eval_fraction=0 --set "
      "eval_batches=0 --set learner.peak_learning_rate=2e-2 --init " +
      run_ + " --data " + lines + " --out " + tuned);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("training targets end with token 3"));
  outcome = meshloom(
      "generate --device cpu --temperature 0 --tokens 8 --chat --json --prompt ab --checkpoint " + tuned);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out);
  EXPECT_EQ(answer["text"], "cd");
  EXPECT_EQ(answer["ended"], true);
  EXPECT_EQ(answer["tokens"].back(), kTurnEnd);
  outcome =
      meshloom("generate --device cpu --temperature 0 --tokens 8 --chat --prompt - --checkpoint " + tuned,
               R"(echo '[{"role": "user", "content": "ab"}]' |)");
  EXPECT_EQ(outcome.out, "cd\n") << outcome.err;

  for (const std::string& like : {std::string(), scratch_.path("hf")}) {
    const std::string out = scratch_.path(like.empty() ? "plain" : "like");
    trainer::export_model(tuned, out, {.like = like}, classes(), [](const std::string&) {});
    EXPECT_EQ(read_text(out + "/chat_template.jinja"), kChatMl);
    EXPECT_FALSE(Json::parse(read_text(out + "/tokenizer_config.json")).contains("chat_template"));
    for (const char* name : {"/config.json", "/generation_config.json"})
      EXPECT_EQ(Json::parse(read_text(out + name))["eos_token_id"], Json({kEnd, kTurnEnd})) << out << name;
  }
}

TEST_F(Chat, WithoutATemplateTheBuiltInFormatIsExported) {
  settings({{"eos_token", "</s>"}});
  imported();
  const std::string lines = scratch_.file("lines.jsonl", kOne + "\n" + kOne + "\n"),
                    tuned = scratch_.path("tuned");
  const Outcome outcome = meshloom("train --device cpu --sample 0 --steps 1 --set sequence=64 --init " +
                                   run_ + " --data " + lines + " --out " + tuned);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(
      outcome.err,
      HasSubstr(
          "the tokenizer has no chat template, so messages are written in the built-in format 'roles'"));
  trainer::export_model(tuned, scratch_.path("hf2"), {}, classes(), [](const std::string&) {});
  // And read again it writes the same.
  const auto built_in = open(kTwo)->example(0);
  run_ = scratch_.path("again");
  import_quietly(scratch_.path("hf2"), run_);
  const auto by_template = open(kTwo)->example(0);
  EXPECT_EQ(by_template.tokens, built_in.tokens);
  EXPECT_EQ(by_template.loss_mask, built_in.loss_mask);
}

TEST_F(Chat, DataShowsWhatIsLearned) {
  settings({{"eos_token", "</s>"}, {"chat_template", kChatMl}});
  imported();
  const std::string lines = scratch_.file("lines.jsonl", kOne + "\n" + kOne + "\n");
  Outcome outcome =
      meshloom("data " + lines + " --init " + run_ + " --show 1 --json --set input.eval_fraction=0");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["examples"], 2);
  EXPECT_EQ(json["ends"], Json({kTurnEnd}));
  ASSERT_EQ(json["shown"].size(), 1u);
  const Json& shown = json["shown"][0];
  EXPECT_EQ(shown["text"], "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\ncd<|im_end|>\n");
  EXPECT_EQ(shown["ids"].size(), shown["loss_mask"].size());
  EXPECT_EQ(shown["tokens"][0], "<|im_start|>");
  outcome = meshloom("data " + lines + " --init " + run_ + " --show 1");
  EXPECT_THAT(outcome.out, HasSubstr("         3 target \"<|im_end|>\"\n"));
  EXPECT_THAT(outcome.out, HasSubstr("targets end with \"<|im_end|>\" (3)"));
}

}  // namespace
}  // namespace meshloom::tests
