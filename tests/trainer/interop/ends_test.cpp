// End-of-text tokens: in the model's files, in training targets, and in exports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/message_of.h"
#include "tests/trainer/interop/chat_model.h"
#include "tests/trainer/interop/support.h"

namespace meshloom::tests {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

class Ends : public testing::Test {
 protected:
  // Imports "hf" and gives the recipe's tokenizer.
  trainer::TokenizerJsonConfig imported() {
    notes_.clear();
    const std::string to = scratch_.path("run" + std::to_string(++count_));
    checkpoint_ = import_quietly(scratch_.path("hf"), to, &notes_).checkpoint;
    return *recipe_of(checkpoint_).input->tokenizer.as<trainer::TokenizerJsonConfig>();
  }
  void file(const std::string& name, const Json& json) { scratch_.file("hf/" + name, json.dump()); }

  Scratch scratch_;
  std::vector<std::string> notes_;
  std::string checkpoint_;
  int count_ = 0;
};

TEST_F(Ends, AreReadAsGenerateReadsThem) {
  chat_model(scratch_, "hf", {{"eos_token_id", kEnd}});
  file("tokenizer_config.json", {{"eos_token", "</s>"}, {"bos_token", nullptr}});
  EXPECT_THAT(imported().eos_token_ids, ElementsAre(kEnd));
  EXPECT_EQ(imported().end_of_text, "</s>");
  EXPECT_THAT(notes_, IsEmpty());
  file("generation_config.json", {{"eos_token_id", {kTurnEnd, kEnd}}});
  EXPECT_THAT(imported().eos_token_ids, ElementsAre(kTurnEnd, kEnd));
  EXPECT_THAT(notes_, IsEmpty());
  // When neither list contains the other, a note says which one is used.
  file("generation_config.json", {{"eos_token_id", kTurnEnd}});
  EXPECT_THAT(imported().eos_token_ids, ElementsAre(kTurnEnd));
  EXPECT_THAT(notes_,
              Contains(HasSubstr("[3] in generation_config.json and [1] in config.json; the first is used")));
  EXPECT_THAT(notes_, Contains(HasSubstr("the tokenizer's eos_token is '</s>' (1), which is not among")));
  file("generation_config.json", {{"temperature", 0.5}});
  EXPECT_THAT(imported().eos_token_ids, ElementsAre(kEnd));
  EXPECT_THAT(notes_, Contains(HasSubstr("has no eos_token_id")));
}

TEST_F(Ends, OfTheTokenizerStandInEitherFile) {
  chat_model(scratch_, "hf");
  file("special_tokens_map.json", {{"eos_token", {{"content", "<|im_end|>"}, {"lstrip", false}}}});
  EXPECT_EQ(imported().end_of_text, "<|im_end|>");
  EXPECT_THAT(imported().eos_token_ids, ElementsAre(kTurnEnd));
  EXPECT_EQ(Json::parse(read_text(checkpoint_ + "/tokenizer_config.json"))["eos_token"]["content"],
            "<|im_end|>");
  file("tokenizer_config.json", {{"eos_token", "</s>"}, {"added_tokens_decoder", Json::object()}});
  EXPECT_EQ(imported().end_of_text, "</s>");
  file("tokenizer_config.json", {{"eos_token", "<none>"}, {"added_tokens_decoder", Json::object()}});
  imported();
  EXPECT_THAT(notes_, Contains(HasSubstr("eos_token '<none>' is not one of its tokens")));
}

TEST_F(Ends, SettingsThatTokenizerJsonDoesNotFollowAreSaid) {
  chat_model(scratch_, "hf", {{"eos_token_id", kEnd}});
  file("tokenizer_config.json",
       {{"eos_token", "</s>"}, {"add_prefix_space", false}, {"split_special_tokens", false}});
  imported();
  EXPECT_THAT(notes_, IsEmpty());
  file("tokenizer_config.json",
       {{"eos_token", "</s>"}, {"add_prefix_space", true}, {"split_special_tokens", true}});
  imported();
  EXPECT_THAT(notes_,
              ElementsAre(HasSubstr("add_prefix_space = true, which some classes of transformers follow, but "
                                    "tokenizer.json does not put a space"),
                          HasSubstr("split_special_tokens = true, which is not built")));
}

TEST_F(Ends, AnEndThatTransformersPutsBehindEveryTextIsSaid) {
  chat_model(scratch_, "hf", {{"eos_token_id", kEnd}});
  std::filesystem::remove(scratch_.path("hf/tokenizer.json"));
  std::filesystem::copy_file(MESHLOOM_SOURCE_DIR "/tests/fuzz/seeds/sentencepiece/bpe.model",
                             scratch_.path("hf/tokenizer.model"));
  for (const bool adds : {false, true}) {
    file("tokenizer_config.json", {{"add_eos_token", adds}});
    notes_.clear();
    import_quietly(scratch_.path("hf"), scratch_.path(adds ? "adds" : "plain"), &notes_);
    const auto said = Contains(HasSubstr("add_eos_token = true, which is not built"));
    if (adds)
      EXPECT_THAT(notes_, said);
    else
      EXPECT_THAT(notes_, Not(said));
  }
}

TEST_F(Ends, OnlyByTheNameIsSaid) {
  chat_model(scratch_, "hf");
  EXPECT_THAT(imported().eos_token_ids, IsEmpty());
  EXPECT_THAT(notes_, Contains(HasSubstr("guessed from its name: '</s>' (1)")));
  // An id of the model has precedence over a guessed name.
  chat_model(scratch_, "other", {{"eos_token_id", kTurnEnd}});
  const auto recipe =
      recipe_of(import_quietly(scratch_.path("other"), scratch_.path("run"), &notes_).checkpoint);
  EXPECT_EQ(recipe.input->tokenizer->end_of_text, "<|im_end|>");
}

TEST_F(Ends, BadOnesAreRefusedOrLeftOut) {
  chat_model(scratch_, "hf", {{"eos_token_id", {kEnd, 61}}});
  EXPECT_THAT(imported().eos_token_ids, ElementsAre(kEnd));
  EXPECT_THAT(notes_, Contains(HasSubstr("eos_token_id 61 is outside of the model's vocabulary of 61")));
  file("generation_config.json", {{"eos_token_id", "</s>"}});
  EXPECT_THAT(message_of([&] { imported(); }),
              HasSubstr("generation_config.json', field eos_token_id: must be an id or a list"));
  file("generation_config.json", Json::object());
  file("tokenizer_config.json", {{"eos_token", 7}});
  EXPECT_THAT(message_of([&] { imported(); }),
              HasSubstr("tokenizer_config.json', field eos_token: must be text"));
}

// With the ids of tokens that the model writes anyway.
TEST_F(Ends, GenerationStopsAtAnyOfThem) {
  chat_model(scratch_, "hf", {{"eos_token_id", kEnd}});
  const auto tokens = [&](const std::string& more = "") {
    const Outcome outcome =
        meshloom("generate --device cpu --temperature 0 --tokens 6 --json --prompt abc --checkpoint " +
                 checkpoint_ + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return std::pair(Json::parse(outcome.out), outcome.err);
  };
  imported();
  const Json whole = tokens().first["tokens"];
  ASSERT_EQ(whole.size(), 9u);
  std::size_t last = 4;  // the first time that this token is written
  while (std::find(whole.begin() + 3, whole.begin() + static_cast<std::ptrdiff_t>(last), whole[last]) !=
         whole.begin() + static_cast<std::ptrdiff_t>(last))
    ++last;
  ASSERT_LT(last, 9u) << whole;
  file("generation_config.json", {{"eos_token_id", {kTurn, whole[last]}}});
  imported();
  const auto [stopped, err] = tokens();
  EXPECT_EQ(stopped["tokens"].size(), last + 1);
  EXPECT_EQ(stopped["ended"], true);
  EXPECT_THAT(err, Not(HasSubstr("ends at once")));
  file("generation_config.json", {{"eos_token_id", whole[3]}});
  imported();
  const auto [at_once, said] = tokens();
  EXPECT_EQ(at_once["tokens"].size(), 4u);
  EXPECT_THAT(said, HasSubstr("note: the model ends at once"));
}

TEST_F(Ends, WhatWasTrainedIsKeptAndExported) {
  chat_model(scratch_, "hf", {{"eos_token_id", kTurnEnd}});
  file("tokenizer_config.json", {{"eos_token", "</s>"}, {"model_max_length", 64}});
  file("generation_config.json", {{"eos_token_id", kTurnEnd}, {"temperature", 0.5}});
  imported();
  std::string pairs;
  for (int i = 0; i < 6; ++i)
    pairs += R"({"prompt": "ab", "completion": "cd"})"
             "\n";
  const std::string tuned = scratch_.path("tuned");
  const Outcome outcome =
      meshloom("train --device cpu --sample 0 --steps 1 --set sequence=16 --init " + checkpoint_ +
               " --data " + scratch_.file("pairs.jsonl", pairs) + " --out " + tuned);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(
      outcome.err,
      HasSubstr("training targets end with token 1, which is not among the model's eos_token_ids [3]"));
  EXPECT_THAT(recipe_of(tuned + "/step-00000001").input->tokenizer->eos_token_ids,
              ElementsAre(kTurnEnd, kEnd));
  for (const std::string& like : {std::string(), scratch_.path("hf")}) {
    const std::string out = scratch_.path(like.empty() ? "plain" : "like");
    std::vector<std::string> notes;
    trainer::export_model(tuned, out, {.like = like}, classes(),
                          [&](const std::string& note) { notes.push_back(note); });
    for (const char* name : {"/config.json", "/generation_config.json"})
      EXPECT_EQ(Json::parse(read_text(out + name))["eos_token_id"], Json({kTurnEnd, kEnd})) << out << name;
    EXPECT_EQ(Json::parse(read_text(out + "/tokenizer_config.json"))["model_max_length"], 64);
    if (!like.empty()) {
      EXPECT_THAT(
          notes,
          Contains(HasSubstr("--like has eos_token_id [3]; that of the checkpoint, [3, 1], is written")));
      EXPECT_EQ(Json::parse(read_text(out + "/generation_config.json"))["temperature"], 0.5);
    }
    const trainer::Imported again = import_quietly(out, out + "-again");
    EXPECT_THAT(recipe_of(again.checkpoint).input->tokenizer->eos_token_ids, ElementsAre(kTurnEnd, kEnd));
  }
}

// Without this file transformers would convert tokenizer.json to the tokenizer class of the model's family.
TEST_F(Ends, ATokenizerIsExportedAsItStands) {
  chat_model(scratch_, "hf", {{"eos_token_id", kEnd}});
  imported();
  trainer::export_model(checkpoint_, scratch_.path("out"), {}, classes(), [](const std::string&) {});
  const Json written = Json::parse(read_text(scratch_.path("out/tokenizer_config.json")));
  EXPECT_EQ(written["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(written["eos_token"], "</s>");
}

}  // namespace
}  // namespace meshloom::tests
