// Preferences in .jsonl files: the forms of a line, their rows, and what does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hal/error.h"
#include "tests/trainer/data/examples.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/jsonl/jsonl_files.h"
#include "trainer/data/jsonl/jsonl_line.h"

namespace meshloom::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kTexts = R"({"prompt": "ab", "chosen": "cd", "rejected": "x"})";
const std::string kScored =
    R"({"prompt": "ab", "chosen": "cd", "rejected": "x", "ref_chosen_logps": -3.5, "ref_rejected_logps": -1})";
const std::string kUser = R"({"role": "user", "content": "U"})";
const std::string kPrompt = R"({"prompt": [)" + kUser +
                            R"(], "chosen": [{"role": "assistant", "content": "A"}], )" +
                            R"("rejected": [{"role": "assistant", "content": "BC"}]})";
const std::string kWhole = R"({"chosen": [)" + kUser + R"(, {"role": "assistant", "content": "A"}], )" +
                           R"("rejected": [)" + kUser + R"(, {"role": "assistant", "content": "BC"}]})";

JsonlFilesConfig all_of_it() {
  JsonlFilesConfig config;
  config.eval_fraction = 0;
  config.shuffle = false;
  return config;
}

std::string error(const std::string& line) {
  return message_of([&] { parse_jsonl_line(line, {}, "f, line 3"); });
}

TEST(PreferenceLine, SaysWhatIsWrong) {
  EXPECT_THAT(error(R"({"prompt": "a", "chosen": "b"})"),
              HasSubstr("f, line 3: must have a member 'rejected'"));
  EXPECT_THAT(error(R"({"chosen": "b", "rejected": "c"})"), HasSubstr("must have a text 'prompt'"));
  EXPECT_THAT(error(R"({"prompt": 7, "chosen": "b", "rejected": "c"})"), HasSubstr("found '7'"));
  EXPECT_THAT(error(R"({"prompt": "a", "chosen": "b", "rejected": [1]})"),
              HasSubstr("must be two texts or two lists of messages; found '[1]'"));
  EXPECT_THAT(error(R"({"prompt": "a", "chosen": "b", "rejected": "c", "completion": "d"})"),
              HasSubstr("must be of one form"));
  EXPECT_THAT(error(R"({"prompt": "a", "chosen": "b", "rejected": "c", "ref_chosen_logps": -1})"),
              HasSubstr("must both be there, or neither; found only 'ref_chosen_logps'"));
  EXPECT_THAT(
      error(
          R"({"prompt": "a", "chosen": "b", "rejected": "c", "ref_chosen_logps": 1, "ref_rejected_logps": 0})"),
      HasSubstr("'ref_chosen_logps' must be a log-probability, a number of at most 0; found '1'"));
  EXPECT_THAT(error(R"({"chosen": [)" + kUser + R"(], "rejected": [)" + kUser + "]}"),
              HasSubstr("f, line 3, chosen: the last message must be an assistant's"));
  EXPECT_THAT(error(R"({"chosen": [{"role": "assistant", "content": "A"}],
                       "rejected": [{"role": "assistant", "content": "B"}]})"),
              HasSubstr("must begin with the same message"));
  std::string with_text = kWhole;
  with_text.insert(1, R"("prompt": "V", )");
  EXPECT_THAT(error(with_text), HasSubstr("'prompt' must be the first message of a user"));
  with_text[12] = 'U';
  EXPECT_NO_THROW(parse_jsonl_line(with_text, {}, "here"));
}

TEST(PreferenceLine, OtherNamesMayBeGiven) {
  JsonlFields fields;
  fields.chosen = "better";
  fields.rejected = "worse";
  const JsonlLine line =
      parse_jsonl_line(R"({"prompt": "a", "better": "b", "worse": "c", "chosen": 1})", fields, "");
  EXPECT_EQ(line.preference->chosen + line.preference->rejected, "bc");
}

TEST(Preferences, AreTwoDocumentsOfARow) {
  const tests::Scratch scratch;
  const auto data = open(all_of_it(), scratch.file("a.jsonl", kScored + "\n"), 10);
  EXPECT_TRUE(data->has_preferences());
  EXPECT_TRUE(data->has_reference());
  const Batch row = data->train(1, 0)->rows(0, 0, 1);
  EXPECT_EQ(text_of(row.tokens), "abcdabx$$$");
  EXPECT_EQ(text_of(row.targets), ".cd$.x$...");
  EXPECT_THAT(row.segments, ElementsAre(1, 1, 1, 1, 2, 2, 2, 0, 0, 0));
  EXPECT_THAT(row.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 0, 0, 0));
  EXPECT_THAT(row.answers, ElementsAre(0, 1, 1, 1, 0, -1, -1, 0, 0, 0));
  EXPECT_THAT(row.reference_logprobs, ElementsAre(0, -3.5, 0, 0, 0, -1, 0, 0, 0, 0));
}

TEST(Preferences, ShareRows) {
  const tests::Scratch scratch;
  const std::string file = scratch.file("a.jsonl", kTexts + "\n" + kTexts + "\n" + kTexts + "\n");
  JsonlFilesConfig config = all_of_it();
  const auto data = open(config, file, 16);
  EXPECT_FALSE(data->has_reference());
  EXPECT_EQ(data->train(1, 0)->rows_per_epoch(), 2);  // of 7 places each
  const Batch row = data->train(1, 0)->rows(0, 0, 1);
  EXPECT_TRUE(row.reference_logprobs.empty());
  EXPECT_EQ(text_of(row.targets), ".cd$.x$.cd$.x$..");
  EXPECT_THAT(row.segments, ElementsAre(1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 0, 0));
  EXPECT_THAT(row.answers, ElementsAre(0, 1, 1, 1, 0, -1, -1, 0, 2, 2, 2, 0, -2, -2, 0, 0));
  config.preferences_per_row = 1;
  EXPECT_EQ(open(config, file, 16)->train(1, 0)->rows_per_epoch(), 3);
  EXPECT_EQ(config.preferences(), 1);
  config.preferences_per_row = 2;
  EXPECT_EQ(open(config, file, 60)->train(1, 0)->rows_per_epoch(), 2);
  config.pack = false;
  EXPECT_EQ(open(config, file, 60)->train(1, 0)->rows_per_epoch(), 3);
  EXPECT_EQ(config.preferences(), 1);
}

// Only what follows the prompt is an answer, however the prompt is given.
TEST(Preferences, OfConversationsAreWrittenByTheTemplate) {
  const tests::Scratch scratch;
  for (const std::string& line : {kPrompt, kWhole}) {
    const auto data = open(all_of_it(), scratch.file("a.jsonl", line + "\n"), 60);
    const Batch row = data->train(1, 0)->rows(0, 0, 1);
    const std::string prompt = "<|user|>\nU\n<|assistant|>\n";
    std::string answers;
    for (std::size_t i = 0; i < row.targets.size(); ++i)
      if (row.targets[i] >= 0) answers += (row.answers[i] > 0 ? '+' : '-') + text_of({row.targets[i]});
    EXPECT_EQ(answers, "+A+$-B-C-$");
    EXPECT_EQ(text_of(row.tokens).substr(0, 2 * prompt.size() + 3), prompt + "A" + prompt + "BC");
  }
}

TEST(Preferences, DoNotMixWithOtherExamples) {
  const tests::Scratch scratch;
  const std::string file = scratch.file("a.jsonl", kTexts + "\n" + R"({"text": "abc"})" + "\n");
  EXPECT_THAT(message_of([&] { open(all_of_it(), file, 20); }),
              HasSubstr("line 2: all lines of a run's data must be preferences, or none of them"));
}

TEST(Preferences, ThatAreTooLongLoseAsMuchOfBothPrompts) {
  const tests::Scratch scratch;
  JsonlFilesConfig config = all_of_it();
  const std::string file =
      scratch.file("a.jsonl", R"({"prompt": "abcdef", "chosen": "CDEF", "rejected": "x"})"
                              "\n");
  const auto row = [&](std::int64_t sequence) {
    return open(config, file, sequence)->train(1, 0)->rows(0, 0, 1);
  };
  // 10 + 7 places; one of each prompt goes for 16 and for 15.
  EXPECT_EQ(text_of(row(17).tokens), "abcdefCDEFabcdefx");
  EXPECT_EQ(text_of(row(16).tokens), "acdefCDEFacdefx$");
  EXPECT_EQ(text_of(row(15).tokens), "acdefCDEFacdefx");
  // One token of each prompt stays; then the longer answer loses its end.
  EXPECT_EQ(text_of(row(5).tokens), "aCDax");
  EXPECT_EQ(text_of(row(5).targets), "CDEx$");
  EXPECT_EQ(text_of(row(2).targets), "Cx");
  config.too_long = "refuse";
  EXPECT_THAT(message_of([&] { row(16); }),
              HasSubstr("at most sequence + 2 = 18 tokens in both answers with their prompts"));
  config.too_long = "skip";
  EXPECT_THAT(message_of([&] { row(16); }), HasSubstr("found 1 longer ones"));
  config.too_long = "cut";
  const std::string scored = scratch.file("b.jsonl", kScored + "\n");
  EXPECT_THAT(message_of([&] { open(config, scored, 6); }),
              HasSubstr("line 1: a preference with a reference model's"));
}

TEST(Preferences, NeedAnswers) {
  const tests::Scratch scratch;
  JsonlFilesConfig config = all_of_it();
  config.end_of_text = false;
  const std::string file = scratch.file("a.jsonl", R"({"prompt": "ab", "chosen": "c", "rejected": ""})"
                                                   "\n");
  EXPECT_THAT(message_of([&] { open(config, file, 20); }),
              HasSubstr("line 1: 'rejected' must have at least one token"));
}

// Another reference is other data.
TEST(Preferences, AreToldApartByTheirReference) {
  const tests::Scratch scratch;
  const auto fingerprint = [&](const std::string& line) {
    return open(all_of_it(), scratch.file("a.jsonl", line + "\n"), 20)->fingerprint();
  };
  std::string other = kScored;
  other.replace(other.find("-3.5"), 4, "-3.6");
  EXPECT_NE(fingerprint(kScored), fingerprint(other));
  EXPECT_NE(fingerprint(kScored), fingerprint(kTexts));
}

}  // namespace
}  // namespace meshloom::trainer
