// Runs that learn from preferences: with the reference's log-probabilities of `meshloom score`, over ranks, in micro-batches, resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

// The chosen answer counts on from the prompt, the other one repeats it.
std::string preferences(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const std::string a(1, static_cast<char>('a' + i % 20)), b(1, static_cast<char>('b' + i % 20));
    lines += R"({"prompt": ")" + a + a + R"( > ", "chosen": ")" + b + b + R"(", "rejected": ")" + a + a + a +
             "\"}\n";
  }
  return lines;
}

class PreferencesRun : public testing::Test {
 protected:
  PreferencesRun() {
    scratch_.file("text", sample_text(6000));
    scratch_.file("raw.jsonl", preferences(80));
    succeed("train tiny --quiet --sample 0 --device cpu --steps 5 --data " + at("text") + " --out " +
            at("base"));
    succeed("score --checkpoint " + at("base") + " --preferences " + at("raw.jsonl") + " --out " +
            at("scored.jsonl"));
  }

  std::string at(const std::string& name) const { return scratch_.path(name); }
  static void succeed(const std::string& arguments) {
    const Outcome outcome = meshloom(arguments);
    ASSERT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
  }
  Outcome train(const std::string& out, const std::string& loss, const std::string& more,
                const std::string& data = "scored.jsonl") const {
    return meshloom("train --quiet --sample 0 --device cpu --lr 1e-3 --init " + at("base") + " --data " +
                    at(data) + " --out " + at(out) + " --set 'model.loss=" + loss + "' " + more);
  }
  std::vector<nlohmann::json> rows(const std::string& out, const std::string& loss,
                                   const std::string& more) const {
    const Outcome outcome = train(out, loss, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::vector<nlohmann::json> rows;
    std::istringstream lines(read_text(at(out + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  Scratch scratch_;
};

TEST_F(PreferencesRun, DPOBeginsAtItsReferenceAndLearns) {
  const auto whole = rows("whole", "DPOLoss{}", "--steps 40"),
             first = rows("halves", "DPOLoss{}", "--steps 20");
  const Outcome rest = train("halves", "DPOLoss{}", "--steps 40 --resume");
  ASSERT_EQ(rest.code, 0) << rest.err;
  ASSERT_EQ(whole.size(), 40u);
  EXPECT_NEAR(whole.front()["loss"], std::numbers::ln2, 1e-5);
  EXPECT_LT(whole.back()["loss"], 0.3);
  EXPECT_EQ(whole.back()["summaries"]["preference/accuracy"], 1);
  EXPECT_GT(whole.back()["summaries"]["preference/margin"], 0.4);
  // Both answers' targets, each with the token that ends it, of 4 rows with 4 preferences.
  EXPECT_EQ(whole.front()["tokens"], 4 * 4 * (3 + 4));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_text(at("whole/step-00000040/") + file), read_text(at("halves/step-00000040/") + file));
}

// The first margins are 0 up to roundings, which differ: the gradient must not depend on that.
TEST_F(PreferencesRun, RanksAndMicroBatchesGiveTheSameNumbers) {
  for (const char* loss : {"DPOLoss{beta=0.5}", "SimPOLoss{}", "ChunkedLoss{base=DPOLoss{} chunk_size=96}"}) {
    const std::string name(loss, 3);
    const auto one = rows(name, loss, "--steps 3");
    int run = 0;
    for (const char* more : {"--set accumulation=4", "--mesh data=2", "--mesh fsdp=2", "--mesh seq=2",
                             "--mesh model=2", "--mesh pipeline=2 --set accumulation=2"}) {
      const auto other = rows(name + std::to_string(run++), loss, std::string("--steps 3 ") + more);
      ASSERT_EQ(other.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_EQ(one[i]["tokens"], other[i]["tokens"]) << loss << more;
        for (const char* what : {"loss", "gradient_norm"})
          EXPECT_NEAR(one[i][what].get<double>(), other[i][what].get<double>(),
                      1e-3 * one[i][what].get<double>())
              << loss << more << ", step " << i << ", " << what;
        EXPECT_NEAR(one[i]["summaries"]["preference/margin"].get<double>(),
                    other[i]["summaries"]["preference/margin"].get<double>(), 1e-4)
            << loss << more;
      }
    }
  }
}

TEST_F(PreferencesRun, SayWhatDoesNotBelongTogether) {
  const auto error = [&](const std::string& loss, const std::string& data) {
    const Outcome outcome = train("none", loss, "--steps 1", data);
    EXPECT_NE(outcome.code, 0);
    return outcome.errors().empty() ? "" : outcome.errors()[0];
  };
  EXPECT_THAT(error("CrossEntropy{}", "raw.jsonl"), HasSubstr("preferences need a loss that reads them"));
  EXPECT_THAT(error("SimPOLoss{}", "text"), HasSubstr("the model's loss needs preferences"));
  EXPECT_THAT(error("DPOLoss{}", "raw.jsonl"),
              HasSubstr("the model's loss needs a reference model's log-probabilities"));
  scratch_.file("half.jsonl", preferences(1) + read_text(at("scored.jsonl")));
  EXPECT_THAT(error("DPOLoss{}", "half.jsonl"), HasSubstr("needs a reference model's log-probabilities"));
  const Outcome texts =
      meshloom("score --checkpoint " + at("base") + " --preferences " + at("text") + " --out " + at("x"));
  EXPECT_NE(texts.code, 0);
  EXPECT_THAT(texts.err, HasSubstr("line 1: the line must be JSON"));
  const Outcome no_out = meshloom("score --checkpoint " + at("base") + " --preferences " + at("raw.jsonl"));
  EXPECT_THAT(no_out.err, HasSubstr("--out"));
}

TEST_F(PreferencesRun, ScoreKeepsTheLinesAndLeavesOutLongOnes) {
  std::istringstream raw(read_text(at("raw.jsonl"))), scored(read_text(at("scored.jsonl")));
  int lines = 0;
  for (std::string before, after; std::getline(raw, before); ++lines) {
    ASSERT_TRUE(std::getline(scored, after));
    nlohmann::json json = nlohmann::json::parse(after);
    for (const char* name : {"ref_chosen_logps", "ref_rejected_logps"}) {
      EXPECT_LT(json[name], 0);
      json.erase(name);
    }
    EXPECT_EQ(json, nlohmann::json::parse(before));
  }
  EXPECT_EQ(lines, 80);
  scratch_.file("long.jsonl", preferences(2) + R"({"prompt": "a", "chosen": ")" + std::string(90, 'b') +
                                  R"(", "rejected": "c"})" + "\n");
  const Outcome outcome = meshloom("score --checkpoint " + at("base") + " --preferences " + at("long.jsonl") +
                                   " --out " + at("out"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("1 of 3 preferences have more than sequence + 2 = 66 tokens"));
  EXPECT_THAT(outcome.out, HasSubstr("2 preferences scored"));
}

}  // namespace
}  // namespace meshloom::tests
