// Runs that learn from rewards of what they write: that they learn, resume to the same bits, and refuse what they cannot do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// The number of letters e, whose id is 101, in an answer.
constexpr const char* kLetters =
    "while read -r line; do n=0; for id in $(echo \"${line#*completion_ids}\" | tr -c \"0-9\\n\" \" \"); do "
    "[ $id = 101 ] && n=$((n + 1)); done; echo $n; done";

class RolloutsRun : public testing::Test {
 protected:
  RolloutsRun() {
    scratch_.file("text", sample_text(6000));
    std::string lines;
    for (int i = 0; i < 6; ++i)
      lines +=
          R"({"prompt": "see )" + std::string(1 + i, 'a') + "\", \"number\": " + std::to_string(i) + "}\n";
    scratch_.file("prompts.jsonl", lines);
    succeed("train tiny --quiet --sample 0 --device cpu --steps 30 --data " + at("text") + " --out " +
            at("base"));
  }

  std::string at(const std::string& name) const { return scratch_.path(name); }
  static void succeed(const std::string& arguments) {
    const Outcome outcome = meshloom(arguments);
    ASSERT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
  }
  Outcome train(const std::string& out, const std::string& more, const std::string& reward = kLetters) const {
    return meshloom(
        "train --quiet --device cpu --lr 3e-3 --batch 8 --init " + at("base") + " --data " +
        at("prompts.jsonl") + " --out " + at(out) +
        " --set sequence=24 --set model.loss=GRPOLoss{} --set input.completions_per_prompt=4 --set "
        "input.eval_fraction=0 " +
        (reward.empty() ? "" : "--reward '" + reward + "' ") + more);
  }
  std::vector<json> lines(const std::string& file) const {
    std::vector<json> all;
    std::istringstream text(read_text(at(file)));
    for (std::string line; std::getline(text, line);) all.push_back(json::parse(line));
    return all;
  }

  Scratch scratch_;
};

TEST_F(RolloutsRun, LearnsAndResumesToTheSameBits) {
  const Outcome whole = train("whole", "--steps 40"), half = train("halves", "--steps 20"),
                rest = train("halves", "--steps 40 --resume");
  for (const Outcome* outcome : {&whole, &half, &rest}) ASSERT_EQ(outcome->code, 0) << outcome->err;
  const std::vector<json> rows = lines("whole/metrics.jsonl"), answers = lines("whole/rollouts.jsonl");
  ASSERT_EQ(rows.size(), 40u);
  ASSERT_EQ(answers.size(), 40u * 8);
  const auto mean = [&](std::size_t first) {
    double sum = 0;
    for (std::size_t i = first; i < first + 5; ++i) sum += rows[i]["reward"].get<double>() / 5;
    return sum;
  };
  EXPECT_LT(mean(0), 3);
  EXPECT_GT(mean(35), mean(0) + 3);
  // The parameters that write are those that learn.
  for (const json& row : rows) {
    EXPECT_LE(row["tokens"], 8 * 12);
    EXPECT_EQ(row["tokens"], 8 * row["summaries"]["rollout/completion_tokens"].get<double>());
    EXPECT_LT(std::abs(row["summaries"]["policy/approx_kl"].get<double>()), 1e-7);
    EXPECT_EQ(row["summaries"]["policy/clip_fraction"], 0);
  }
  for (const char* file :
       {"step-00000040/model.safetensors", "step-00000040/optimizer.safetensors", "rollouts.jsonl"})
    EXPECT_EQ(read_text(at("whole/") + file), read_text(at("halves/") + file)) << file;
}

TEST_F(RolloutsRun, RecordsWhatItWroteAndWhatThatIsWorth) {
  const Outcome outcome = train("run", "--steps 3");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<json> rows = lines("run/metrics.jsonl"), answers = lines("run/rollouts.jsonl");
  ASSERT_EQ(answers.size(), 3u * 8);
  std::map<int, int> prompts;  // how many answers each has
  for (std::size_t group = 0; group < answers.size(); group += 4) {
    double sum = 0, squares = 0;
    for (std::size_t i = group; i < group + 4; ++i) {
      const json& answer = answers[i];
      EXPECT_EQ(answer["step"], i / 8 + 1);
      EXPECT_EQ(answer["example"], answers[group]["example"]);
      ++prompts[answer["example"]["number"]];
      const auto& ids = answer["completion_ids"];
      EXPECT_LE(ids.size(), 12u);
      EXPECT_EQ(answer["finish_reason"], ids.back() == 0 ? "stop" : "length");
      EXPECT_EQ(answer["reward"], std::count(ids.begin(), ids.end(), 101));
      sum += answer["reward"].get<double>();
    }
    for (std::size_t i = group; i < group + 4; ++i)
      squares += std::pow(answers[i]["reward"].get<double>() - sum / 4, 2);
    const double deviation = std::sqrt(squares / 3);
    for (std::size_t i = group; i < group + 4; ++i)
      EXPECT_NEAR(answers[i]["advantage"].get<double>(),
                  (answers[i]["reward"].get<double>() - sum / 4) / (deviation + 1e-4), 1e-9);
  }
  // An epoch has each prompt once.
  for (int number = 0; number < 6; ++number) EXPECT_EQ(prompts[number], 4) << number;
  double first = 0;
  for (std::size_t i = 0; i < 8; ++i) first += answers[i]["reward"].get<double>() / 8;
  EXPECT_NEAR(rows[0]["reward"].get<double>(), first, 1e-9);
}

TEST_F(RolloutsRun, MicroBatchesGiveTheSameGradient) {
  const Outcome one = train("one", "--steps 1"), two = train("two", "--steps 1 --set accumulation=2");
  ASSERT_EQ(one.code + two.code, 0) << one.err << two.err;
  EXPECT_EQ(read_text(at("one/rollouts.jsonl")), read_text(at("two/rollouts.jsonl")));
  const json a = lines("one/metrics.jsonl")[0], b = lines("two/metrics.jsonl")[0];
  EXPECT_GT(a["gradient_norm"].get<double>(), 0.01);
  EXPECT_NEAR(a["gradient_norm"].get<double>(), b["gradient_norm"].get<double>(), 1e-5);
  EXPECT_NEAR(a["loss"].get<double>(), b["loss"].get<double>(), 1e-6);
}

TEST_F(RolloutsRun, EvaluatesHeldOutPrompts) {
  const std::string held = " --set input.eval_fraction=0.34 --set eval_every=2";
  const Outcome whole = train("whole", "--steps 4" + held), half = train("halves", "--steps 2" + held),
                rest = train("halves", "--steps 4 --resume" + held);
  for (const Outcome* outcome : {&whole, &half, &rest}) ASSERT_EQ(outcome->code, 0) << outcome->err;
  const std::vector<json> rows = lines("whole/metrics.jsonl"), answers = lines("whole/eval_rollouts.jsonl");
  ASSERT_EQ(answers.size(), 2u * 2);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i]["step"], i < 2 ? 2 : 4);
    EXPECT_EQ(answers[i]["example"]["number"], 4 + i % 2);
    const auto& ids = answers[i]["completion_ids"];
    EXPECT_EQ(answers[i]["reward"], std::count(ids.begin(), ids.end(), 101));
    EXPECT_FALSE(answers[i].contains("advantage"));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_FALSE(rows[i].contains("eval_loss"));
    ASSERT_EQ(rows[i].contains("eval_reward"), i % 2 == 1);
    if (i % 2 == 1)
      EXPECT_NEAR(rows[i]["eval_reward"].get<double>(),
                  (answers[i - 1]["reward"].get<double>() + answers[i]["reward"].get<double>()) / 2, 1e-9);
  }
  for (const json& answer : lines("whole/rollouts.jsonl")) EXPECT_LT(answer["example"]["number"], 4);
  for (const char* file : {"rollouts.jsonl", "eval_rollouts.jsonl", "step-00000004/model.safetensors"})
    EXPECT_EQ(read_text(at("whole/") + file), read_text(at("halves/") + file)) << file;
  EXPECT_THAT(read_text(at("whole/reward.svg")), AllOf(HasSubstr("Reward of "), HasSubstr("<circle")));
}

// An evaluation draws nothing that a step would have drawn.
TEST_F(RolloutsRun, EvaluationChangesNoStep) {
  const std::string files = "--steps 3 --eval-data " + at("prompts.jsonl");
  const Outcome none = train("none", files + " --set eval_batches=0"),
                drawn = train("drawn", files + " --set eval_every=1 --set input.eval_temperature=1");
  ASSERT_EQ(none.code, 0) << none.err;
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  for (const char* file : {"rollouts.jsonl", "step-00000003/model.safetensors"})
    EXPECT_EQ(read_text(at("none/") + file), read_text(at("drawn/") + file)) << file;
  EXPECT_EQ(lines("drawn/eval_rollouts.jsonl").size(), 3u * 6);
}

// Wherever the run is cut in two, it goes on with the answers that were written for the steps after the cut.
TEST_F(RolloutsRun, SeveralStepsLearnFromOneGeneration) {
  const std::string parts = " --set input.steps_per_generation=2 --set input.num_iterations=2";
  const Outcome whole = train("whole", "--steps 6" + parts),
                ranks = train("ranks", "--steps 6 --mesh data=2" + parts);
  ASSERT_EQ(whole.code, 0) << whole.err;
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  const std::vector<json> rows = lines("whole/metrics.jsonl"), answers = lines("whole/rollouts.jsonl");
  ASSERT_EQ(answers.size(), 2u * 16);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i]["step"], i < 16 ? 1 : 5);
    EXPECT_EQ(answers[i]["logprobs"].size(), answers[i]["completion_ids"].size());
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t first = i / 4 * 16 + i % 2 * 8;
    double sum = 0;
    for (std::size_t at = first; at < first + 8; ++at) sum += answers[at]["reward"].get<double>() / 8;
    EXPECT_NEAR(rows[i]["reward"].get<double>(), sum, 1e-9) << i;
    EXPECT_EQ(rows[i]["summaries"].contains("rollout/seconds"), i % 4 == 0);
    const double kl = rows[i]["summaries"]["policy/approx_kl"];
    if (i % 4 == 0)
      EXPECT_LT(std::abs(kl), 1e-7);
    else
      EXPECT_GT(kl, 1e-6) << i;
    EXPECT_NEAR(lines("ranks/metrics.jsonl")[i]["loss"].get<double>(), rows[i]["loss"].get<double>(), 1e-5);
  }
  for (int cut = 1; cut < 6; ++cut) {
    const std::string out = "cut-" + std::to_string(cut);
    const Outcome half = train(out, "--steps " + std::to_string(cut) + parts),
                  rest = train(out, "--steps 6 --resume" + parts);
    ASSERT_EQ(half.code, 0) << half.err;
    ASSERT_EQ(rest.code, 0) << rest.err;
    for (const char* file : {"rollouts.jsonl", "step-00000006/model.safetensors"})
      EXPECT_EQ(read_text(at("whole/") + file), read_text(at(out + "/") + file)) << cut << file;
  }
  // Without them it says so.
  const auto refused = [&](const std::string& why) {
    const Outcome outcome = train("cut-3", "--steps 8 --resume" + parts);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr(why));
    EXPECT_EQ(outcome.errors().size(), 1u) << outcome.err;
  };
  const std::string text = read_text(at("cut-3/rollouts.jsonl"));
  scratch_.file("cut-3/rollouts.jsonl", text.substr(0, text.find_last_of('\n', text.size() - 2) + 1));
  refused("step 5: must have the 16 answers that later steps learn from; found 15");
  std::string other = text;
  other.replace(other.rfind("\"logprobs\":[") + 11, 1, "[0,");
  scratch_.file("cut-3/rollouts.jsonl", other);
  refused("a log-probability for each of its tokens");
  const std::size_t ids = text.rfind("\"completion_ids\":[") + 18;
  for (const char* id : {"-1,", "256,", "9000000000,"}) {
    other = text;
    other.replace(ids, text.find(',', ids) - ids + 1, id);
    scratch_.file("cut-3/rollouts.jsonl", other);
    refused("must have tokens of the model's vocabulary");
  }
  other = text;
  other.insert(other.rfind("\"logprobs\":[") + 12, "0,0,0,0,0,0,0,0,0,0,0,0,");
  other.insert(ids, "1,1,1,1,1,1,1,1,1,1,1,1,");
  scratch_.file("cut-3/rollouts.jsonl", other);
  refused("must have answers that fit a row of 24 tokens");
  other = text;
  other.replace(other.rfind("see a"), 5, "see b");
  scratch_.file("cut-3/rollouts.jsonl", other);
  refused("must have answers to the prompts of the data");
  std::filesystem::remove(at("cut-3/rollouts.jsonl"));
  refused("must have the 16 answers");
}

// Each rank writes a part of the answers, and learns from a part of the rows.
TEST_F(RolloutsRun, RanksWriteAndLearnTogether) {
  const std::string steps =
      "--steps 3 --set eval_every=1 --eval-data " + at("prompts.jsonl") + " --mesh data=";
  const Outcome one = train("one", steps + "1"), two = train("two", steps + "2"),
                four = train("four", steps + "4 --set input.eval_temperature=0.5");
  for (const Outcome* outcome : {&one, &two, &four}) ASSERT_EQ(outcome->code, 0) << outcome->err;
  for (const char* file : {"rollouts.jsonl", "eval_rollouts.jsonl"})
    EXPECT_EQ(read_text(at("one/") + file), read_text(at("two/") + file)) << file;
  EXPECT_EQ(read_text(at("one/rollouts.jsonl")), read_text(at("four/rollouts.jsonl")));
  for (const char* run : {"two/metrics.jsonl", "four/metrics.jsonl"})
    for (std::size_t i = 0; i < 3; ++i) {
      const json got = lines(run).at(i), want = lines("one/metrics.jsonl").at(i);
      EXPECT_NEAR(got["loss"].get<double>(), want["loss"].get<double>(), 1e-6);
      EXPECT_NEAR(got["gradient_norm"].get<double>(), want["gradient_norm"].get<double>(), 1e-5);
      EXPECT_EQ(got["reward"], want["reward"]);
    }
}

// Answers wait for the one that computes the pages of their prompt first: that changes none of them.
TEST_F(RolloutsRun, LongPromptsAreComputedOnce) {
  std::string prompts;
  for (const std::string& text : {sample_text(100), std::string("short"), sample_text(90).substr(5)})
    prompts += json{{"prompt", text}}.dump() + "\n";
  scratch_.file("prompts.jsonl", prompts);
  const std::string longer =
      "--steps 3 --set sequence=128 --set input.max_completion_tokens=8 --set input.max_sequences=";
  const Outcome many = train("many", longer + "8"), one = train("one", longer + "1");
  ASSERT_EQ(many.code, 0) << many.err;
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(lines("many/rollouts.jsonl").size(), 3u * 8);
  EXPECT_EQ(read_text(at("many/rollouts.jsonl")), read_text(at("one/rollouts.jsonl")));
}

// Only the adapter learns, and bf16 rounds what writes and what learns in other places: their probabilities differ a little.
TEST_F(RolloutsRun, AdaptersAndSixteenBits) {
  const Outcome adapter = train("adapter", "--steps 2 --modify 'Adapt{with=Lora{rank=2}}'"),
                half = train("half", "--steps 2 --set dtype=bf16");
  ASSERT_EQ(adapter.code, 0) << adapter.err;
  ASSERT_EQ(half.code, 0) << half.err;
  EXPECT_LT(lines("adapter/metrics.jsonl")[1]["summaries"]["policy/approx_kl"].get<double>(), 1e-7);
  EXPECT_LT(lines("half/metrics.jsonl")[1]["summaries"]["policy/approx_kl"].get<double>(), 1e-2);
}

// The loss follows the rewards, however large they are: that is no divergence. Longer answers are good for 24 steps, and then bad.
TEST_F(RolloutsRun, LargeRewardsAreNoDivergence) {
  std::string pairs;
  for (int i = 0; i < 40; ++i)
    pairs += R"({"prompt": "see a", "completion": ")" + std::string(1 + i % 8, 'b') + "\"}\n";
  scratch_.file("pairs.jsonl", pairs);
  succeed("train tiny --quiet --device cpu --steps 60 --data " + at("pairs.jsonl") + " --out " + at("pairs"));
  const Outcome outcome = meshloom(
      "train --quiet --device cpu --lr 1e-7 --steps 32 --batch 8 --init " + at("pairs") + " --data " +
      at("prompts.jsonl") + " --out " + at("large") +
      " --set sequence=24 --set model.loss=GRPOLoss{} --set input.scale_advantages=false --reward '" +
      "n=0; while read -r line; do n=$((n + 1)); s=1000; [ $n -gt 192 ] && s=-1000; echo $((s * ${#line})); "
      "done'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find("diverged"), std::string::npos) << outcome.err;
  const std::vector<json> rows = lines("large/metrics.jsonl");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double loss = rows[i]["loss"];
    if (i < 24)
      EXPECT_LT(loss, -100);
    else
      EXPECT_GT(loss, 100);
  }
}

TEST_F(RolloutsRun, AFailingProgramEndsTheRunBehindItsLastWholeStep) {
  for (const std::string out : {"failed", "failed-ranks"}) {
    const std::string mesh = out == "failed" ? "" : " --mesh data=2";
    const Outcome failed =
        train(out, "--steps 9" + mesh,
              "n=0; while read -r line; do n=$((n + 1)); [ $n -gt 20 ] && exit 3; echo $n; done");
    EXPECT_EQ(failed.code, 1);
    EXPECT_THAT(failed.err, AllOf(HasSubstr("it ended with the exit code 3"), HasSubstr("saved ")));
    EXPECT_EQ(lines(out + "/metrics.jsonl").size(), 2u);
    const Outcome rest = train(out, "--steps 3 --resume" + mesh);
    ASSERT_EQ(rest.code, 0) << rest.err;
    EXPECT_EQ(lines(out + "/rollouts.jsonl").size(), 3u * 8);
  }
}

TEST_F(RolloutsRun, RefusesWhatItCannotDo) {
  const auto refused = [&](const std::string& more, const std::string& why,
                           const std::string& reward = kLetters) {
    const Outcome outcome = train("refused", more, reward);
    EXPECT_EQ(outcome.code, 1) << more;
    EXPECT_THAT(outcome.err, HasSubstr(why)) << more;
    EXPECT_EQ(outcome.errors().size(), 1u) << outcome.err;
  };
  refused("--set input.completions_per_prompt=3", "must be a multiple of input.completions_per_prompt, 3");
  refused("--mesh fsdp=2", "must have a mesh of the axis data alone");
  refused("--mesh data=2 --set mesh.balance=true", "mesh.balance: cannot measure rows");
  refused("--sample-every 1", "--sample-every: is not for runs");
  refused("--set input.max_completion_tokens=24", "must be below the sequence, 24");
  refused("--set input.prompt=question", "must have a member 'question'");
  refused("--set model.loss=CrossEntropy{}", "--set model.loss=GRPOLoss{}");
  refused("--set input.too_long=refuse --set input.max_completion_tokens=20",
          "sequence - max_completion_tokens = 4 tokens");
  const Outcome bare = meshloom("train --init " + at("base") + " --data " + at("prompts.jsonl") +
                                " --set model.loss=GRPOLoss{} --out " + at("refused"));
  EXPECT_THAT(bare.err, HasSubstr("prompts alone are for `meshloom train --reward`"));
  const Outcome text = meshloom("train tiny --data " + at("text") + " --reward true --out " + at("refused"));
  EXPECT_THAT(text.err, HasSubstr("--reward: needs --data with .jsonl files of prompts"));
}

}  // namespace
}  // namespace meshloom::tests
