// Examples from .jsonl files: the forms of a line, its targets, how it becomes rows, and whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "hal/error.h"
#include "tests/trainer/data/examples.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/jsonl/jsonl_files.h"
#include "trainer/data/packing/packed_rows.h"
#include "trainer/data/text/text_files.h"

namespace meshloom::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kPair = R"({"prompt": "ab", "completion": "cd"})";

const std::string kChat =
    R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, )"
    R"({"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}, {"role": "assistant", "content": "B"}]})";

std::unique_ptr<Dataset> open(JsonlFilesConfig config, const std::string& file) {
  return open(config, file, 8);
}

JsonlFilesConfig all_of_it() {
  JsonlFilesConfig config;
  config.eval_fraction = 0;
  config.shuffle = false;
  return config;
}

TEST(JsonlLine, HasOneOfThreeForms) {
  const auto turns = [](const std::string& line) {
    std::string text;
    for (const Turn& turn : parse_jsonl_line(line, {}, "here").turns)
      text += turn.context + "[" + turn.answer + "]";
    return text;
  };
  EXPECT_EQ(turns(kPair), "ab[cd]");
  EXPECT_EQ(turns(R"({"text": "ab", "id": 7, "source": {"url": [1]}})"), "[ab]");
  const JsonlLine chat =
      parse_jsonl_line(R"({"tools": [1], "messages": [{"role": "user", "name": null, "content": "U"},
                                              {"role": "assistant", "content": "A"}]})",
                       {}, "here");
  EXPECT_EQ(chat.messages.dump(), R"([{"role":"user","content":"U"},{"role":"assistant","content":"A"}])");
  EXPECT_EQ(chat.tools.dump(), "[1]");
  EXPECT_TRUE(chat.turns.empty());
  JsonlFields fields;
  fields.prompt = "question";
  fields.completion = "answer";
  EXPECT_EQ(
      parse_jsonl_line(R"({"question": "q", "answer": "a", "prompt": 3})", fields, "").turns.at(0).answer,
      "a");
}

TEST(JsonlLine, SaysWhatIsWrong) {
  const auto error = [](const std::string& line) {
    return message_of([&] { parse_jsonl_line(line, {}, "f, line 3"); });
  };
  EXPECT_THAT(error("{\"prompt\": \"a\""), HasSubstr("f, line 3: the line must be JSON"));
  EXPECT_THAT(error("[1]"), HasSubstr("a line must be a JSON object; found '[1]'"));
  EXPECT_THAT(
      error(R"({"promt": "a"})"),
      HasSubstr(
          "a line must have 'prompt' and 'completion', or 'messages', or 'text', or 'chosen' and 'rejected'; "
          "found members 'promt'"));
  EXPECT_THAT(error(R"({"prompt": "a"})"), HasSubstr("must have a member 'completion'"));
  EXPECT_THAT(error(R"({"prompt": "a", "completion": 7})"),
              HasSubstr("'completion' must be text; found '7'"));
  EXPECT_THAT(error(R"({"prompt": "a", "completion": "b", "text": "c"})"), HasSubstr("must be of one form"));
  EXPECT_THAT(error(R"({"text": "a", "text": "b"})"), HasSubstr("a name must stand once"));
  EXPECT_THAT(error(R"({"messages": []})"), HasSubstr("at least one"));
  EXPECT_THAT(error(R"({"messages": [{"role": 7}]})"),
              HasSubstr("f, line 3, messages[0]: 'role' must be text; found '7'"));
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": "a"}]})"), HasSubstr("the last message"));
  EXPECT_THAT(error("{\"text\": \"\xff\"}"), HasSubstr("must be JSON"));
}

TEST(Jsonl, OnlyAnswersAreLearned) {
  const tests::Scratch scratch;
  JsonlFilesConfig config = all_of_it();
  config.pack = false;
  const auto data = open(config, scratch.file("a.jsonl", kPair + "\r\n\n" + R"({"text": "xyz"})"));
  EXPECT_EQ(data->train_tokens(), 5 + 4);
  EXPECT_EQ(data->eval(), nullptr);
  const Batch batch = data->train(2, 1)->rows(0, 0, 2);
  EXPECT_EQ(text_of(batch.tokens), "abcd$$$$xyz$$$$$");  // padding is 0 as well
  EXPECT_EQ(text_of(batch.targets), ".cd$....yz$.....");
  EXPECT_THAT(batch.segments, ElementsAre(1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0));
}

// The built-in format, as it always was.
TEST(Jsonl, MessagesWithoutATemplateHaveARoleEach) {
  const tests::Scratch scratch;
  const auto data = open(all_of_it(), scratch.file("a.jsonl", kChat), 80);
  const Example example = data->example(0);
  EXPECT_EQ(text_of(example.tokens),
            "<|system|>\nS\n<|user|>\nU\n<|assistant|>\nA$\n<|user|>\nV\n<|assistant|>\nB$");
  std::string learned;
  for (std::size_t i = 0; i < example.tokens.size(); ++i)
    if (example.loss_mask[i]) learned += text_of({example.tokens[i]});
  EXPECT_EQ(learned, "A$B$");
  EXPECT_THAT(data->notes(), ElementsAre(HasSubstr("written in the built-in format 'roles'")));
  EXPECT_EQ(data->target_format().chat_template, "roles");
  const auto error = [&](const std::string& message) {
    return message_of([&] {
      open(all_of_it(), scratch.file("b.jsonl", R"({"messages": [)" + message +
                                                    R"(, {"role": "assistant", "content": "A"}]})"));
    });
  };
  EXPECT_THAT(error(R"({"role": "bot", "content": "a"})"),
              HasSubstr("line 1, messages[0]: role must be system, user or assistant; found 'bot'"));
  EXPECT_THAT(error(R"({"role": "user", "content": ["a"]})"),
              HasSubstr("messages[0]: 'content' must be text"));
  JsonlFilesConfig other = all_of_it();
  other.chat_template = "chatml";
  EXPECT_THAT(message_of([&] { open(other, scratch.path("a.jsonl")); }),
              HasSubstr("or the built-in 'roles'; found 'chatml'"));
}

TEST(Jsonl, ExamplesShareARow) {
  const tests::Scratch scratch;
  const auto data = open(all_of_it(), scratch.file("a.jsonl", kPair + "\n" + R"({"text": "xyz"})" + "\n"));
  const auto batches = data->train(1, 1);
  ASSERT_EQ(batches->rows_per_epoch(), 1);
  const Batch batch = batches->rows(0, 0, 1);
  EXPECT_EQ(text_of(batch.tokens), "abcdxyz$");
  EXPECT_EQ(text_of(batch.targets), ".cd$yz$.");
  EXPECT_THAT(batch.segments, ElementsAre(1, 1, 1, 1, 2, 2, 2, 0));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 0));
}

TEST(Jsonl, LongExamplesAreCutAsTheRuleSays) {
  const tests::Scratch scratch;
  const std::string file = scratch.file("a.jsonl", R"({"prompt": "0123456", "completion": "abcd"})"
                                                   "\n"
                                                   R"({"prompt": "q", "completion": "abcdefghijk"})");
  JsonlFilesConfig config = all_of_it();
  config.pack = false;
  const auto data = open(config, file);
  const Batch batch = data->train(2, 1)->rows(0, 0, 2);
  EXPECT_EQ(text_of(batch.tokens),
            "0456abcdqabcdefg");  // the front of the prompt, but for one token; then the end
  EXPECT_EQ(text_of(batch.targets), "...abcd$abcdefgh");
  EXPECT_THAT(data->notes(),
              ElementsAre("2 of the examples had more than sequence + 1 = 9 tokens and were cut"));
  config.too_long = "refuse";
  EXPECT_THAT(message_of([&] { open(config, file); }),
              HasSubstr("a.jsonl', line 1: an example must have at most"));
  config.too_long = "skip";
  EXPECT_THAT(message_of([&] { open(config, file); }), HasSubstr("must hold at least one example"));
  config.too_long = "drop";
  EXPECT_THAT(message_of([&] { open(config, file); }),
              HasSubstr("input.too_long: must be cut, skip or refuse"));
}

TEST(Jsonl, BadFilesNameTheLine) {
  const tests::Scratch scratch;
  const auto error = [&](const std::string& text) {
    return message_of([&] { open(all_of_it(), scratch.file("bad.jsonl", text)); });
  };
  EXPECT_THAT(error(kPair + "\n\n" + kPair + "\n{\"prompt\": 1}\n"),
              HasSubstr("bad.jsonl', line 4: 'prompt' must be text"));
  EXPECT_THAT(error("\n \n"), HasSubstr("must hold at least one example; found none"));
  EXPECT_THAT(error(R"({"text": ""})"), HasSubstr("line 1: an example must have at least two tokens"));
  EXPECT_THAT(error("{\"text\": }"), HasSubstr("must be JSON; found 'parse error at line 1, column 10"));
  JsonlFilesConfig skips = all_of_it();
  skips.too_long = "skip";
  EXPECT_THAT(message_of([&] {
                open(skips, scratch.file("long.jsonl", R"({"text": ")" + std::string(4000, 'x') + "\"}"));
              }),
              HasSubstr("tokens; found 1 longer ones"));
  JsonlFilesConfig held = all_of_it();
  held.eval_fraction = 0.5;
  EXPECT_THAT(message_of([&] { open(held, scratch.file("one.jsonl", kPair)); }),
              HasSubstr("at least two examples"));
}

TEST(Jsonl, StepsReadTheSameRowsInAnyOrder) {
  const tests::Scratch scratch;
  std::string text;
  for (int i = 0; i < 200; ++i)
    text +=
        nlohmann::json{{"prompt", "p" + std::to_string(i)}, {"completion", std::string(1 + i % 7 * 3, 'x')}}
            .dump() +
        "\n";
  JsonlFilesConfig config;
  config.eval_fraction = 0.1;
  const std::string file = scratch.file("a.jsonl", text);
  const auto one = open(config, file, 32), two = open(config, file, 32);
  EXPECT_EQ(one->fingerprint(), two->fingerprint());
  const auto first = one->train(4, 3), second = two->train(4, 3);
  for (const std::int64_t step : {57, 0, 12, 3}) {
    const Batch whole = first->rows(step, 0, 4);
    Batch parts = second->rows(step, 0, 1);
    parts.append(second->rows(step, 1, 3));
    EXPECT_EQ(whole.tokens, parts.tokens);
    EXPECT_EQ(whole.targets, parts.targets);
    EXPECT_EQ(whole.segments, parts.segments);
    EXPECT_EQ(whole.positions, parts.positions);
  }
  // An epoch visits every row once: the prompts seen are those of the 180 that train, each once.
  std::multiset<std::string> seen;
  for (std::int64_t row = 0; row < first->rows_per_epoch(); ++row) {
    const Batch batch = first->rows(row / 4, row % 4, 1);
    std::string prompt;
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.positions[i] == 0 && !prompt.empty()) prompt.clear();
      if (batch.segments[i] != 0 && batch.targets[i] < 0)
        prompt += static_cast<char>(batch.tokens[i]);
      else if (batch.segments[i] != 0 && !prompt.empty()) {
        seen.insert(prompt + static_cast<char>(batch.tokens[i]));
        prompt.clear();
      }
    }
  }
  EXPECT_EQ(seen.size(), 180u);
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), 180u);
}

TEST(PackRows, FillsRowsAndLosesNothing) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 3000; ++i) lengths.push_back(1 + i * i * 7919 % 97);
  const RowPacking packing = pack_rows(lengths, 128);
  std::set<std::int64_t> seen(packing.examples.begin(), packing.examples.end());
  EXPECT_EQ(seen.size(), lengths.size());
  EXPECT_EQ(packing.examples.size(), lengths.size());
  for (std::int64_t row = 0; row < packing.rows(); ++row) {
    std::int64_t sum = 0;
    for (std::int64_t at = packing.starts[static_cast<std::size_t>(row)];
         at < packing.starts[static_cast<std::size_t>(row) + 1]; ++at)
      sum += lengths[static_cast<std::size_t>(packing.examples[static_cast<std::size_t>(at)])];
    EXPECT_GT(sum, 0);
    EXPECT_LE(sum, 128);
  }
  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  EXPECT_LE(packing.rows(), total / 128 * 102 / 100 + 1);  // nearly full
  EXPECT_EQ(pack_rows({5, 5, 5}, 5).rows(), 3);
}

TEST(TextFiles, DocumentsAreKeptApart) {
  const tests::Scratch scratch;
  TextFilesConfig config;
  config.files = {scratch.file("a", "abc\n--\nxy\n--\n\n--\n0123456789")};
  config.separator = "\n--\n";
  config.eval_fraction = 0;
  config.shuffle = false;
  const auto tokenizer = byte_tokenizer();
  const auto data = config.open(*tokenizer, 256, 6);
  std::string tokens, targets;
  const auto batches = data->train(1, 1);
  for (std::int64_t row = 0; row < batches->rows_per_epoch(); ++row) {
    const Batch batch = batches->rows(row, 0, 1);
    tokens += text_of(batch.tokens) + "|";
    targets += text_of(batch.targets) + "|";
  }
  EXPECT_EQ(tokens, "012345|xy6789|abc$$$|");  // the last three are padding
  EXPECT_EQ(targets, "123456|y$789$|bc$...|");
}

}  // namespace
}  // namespace meshloom::trainer

namespace meshloom::tests {
namespace {

std::string pairs(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text +=
        nlohmann::json{{"prompt", "say " + std::string(1 + i % 5, static_cast<char>('a' + i % 26)) + ": "},
                       {"completion", std::string(1 + i % 9, static_cast<char>('a' + i % 26))}}
            .dump() +
        "\n";
  return text;
}

std::vector<nlohmann::json> metrics(const std::string& run) {
  std::vector<nlohmann::json> all;
  std::istringstream text(read_text(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

const std::string kSmall =
    "train tiny --device cpu --sample 0 --set sequence=48 --set batch=4 --set "
    "model.decoder.stack.num_layers=1 "
    "--set eval_batches=1 --set checkpoint_every=20 --set learner.peak_learning_rate=1e-2 ";

TEST(JsonlRun, LearnsResumesAndReportsItsFill) {
  const Scratch scratch;
  const std::string data = " --data " + scratch.file("pairs.jsonl", pairs(300));
  const auto run = [&](const std::string& out, const std::string& more) {
    const Outcome outcome = meshloom(kSmall + data + " --out " + scratch.path(out) + " " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  };
  run("whole", "--steps 40");
  run("halves", "--steps 20");
  run("halves", "--steps 40 --resume");
  run("parts", "--steps 40 --set accumulation=2");
  const auto whole = metrics(scratch.path("whole")), halves = metrics(scratch.path("halves")),
             parts = metrics(scratch.path("parts"));
  ASSERT_EQ(whole.size(), 40u);
  ASSERT_EQ(halves.size(), 40u);
  ASSERT_EQ(parts.size(), 40u);
  EXPECT_LT(whole.back()["loss"], 0.7 * whole.front()["loss"].get<double>());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i]["loss"], halves[i]["loss"]) << i;
    EXPECT_EQ(whole[i]["tokens"], parts[i]["tokens"]) << i;
    EXPECT_NEAR(whole[i]["loss"], parts[i]["loss"], 1e-3 * whole[i]["loss"].get<double>()) << i;
    EXPECT_GT(whole[i]["packing_efficiency"], 0.75);
    EXPECT_LE(whole[i]["packing_efficiency"], 1.0);
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_text(scratch.path("whole/step-00000040/") + file),
              read_text(scratch.path("halves/step-00000040/") + file));
}

TEST(JsonlRun, FieldsAreSetAndErrorsAreOneLine) {
  const Scratch scratch;
  const std::string out = " --out " + scratch.path("run") + " --steps 1 ";
  scratch.file("text", sample_text(4000));
  scratch.file("qa.jsonl", R"({"question": "a?", "answer": "b"})"
                           "\n"
                           R"({"question": "c?", "answer": 4})"
                           "\n");
  const auto error = [&](const std::string& arguments) {
    const Outcome outcome = meshloom(kSmall + arguments + out);
    EXPECT_NE(outcome.code, 0);
    const auto lines = outcome.errors();
    EXPECT_EQ(lines.size(), 1u) << outcome.err;
    return lines.empty() ? "" : lines[0];
  };
  const std::string data = " --data " + scratch.path("qa.jsonl");
  EXPECT_THAT(error(data), testing::HasSubstr("line 1: a line must have 'prompt' and 'completion'"));
  EXPECT_THAT(error(data + " --set input.prompt=question --set input.completion=answer"),
              testing::HasSubstr("line 2: 'answer' must be text; found '4'"));
  EXPECT_THAT(error(data + " " + scratch.path("text")),
              testing::HasSubstr("must all be .jsonl or all be text"));
}

}  // namespace
}  // namespace meshloom::tests
