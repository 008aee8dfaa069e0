// `meshloom train` over several ranks, as threads and as processes of mpirun: the numbers of one rank, its checkpoints, its bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/mpi/backend.h"
#include "tests/mesh/train_over_ranks.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

TEST_F(TrainOverRanks, GivesTheLossesOfOneRankWithAnyRecipe) {
  const std::vector<std::string> recipes{
      "--set accumulation=2",
      "--set model.decoder.stack.layer.attention.dropout=0.1",
      "--modify 'Quantize{}' --modify 'Adapt{with=Lora{rank=4}}'",
      "--replace 'FeedForward=MoE{num_experts=4}'",
      "--replace 'AdamW=Muon{}' --set learner.ema=Ema{}",
  };
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    SCOPED_TRACE(recipes[i]);
    const std::string one = "one" + std::to_string(i), four = "four" + std::to_string(i);
    const Result alone = train(one, "--steps 8 " + recipes[i]),
                 over = train(four, "--steps 8 --mesh data=2,fsdp=2 " + recipes[i]);
    EXPECT_EQ(alone.code, 0) << alone.said;
    EXPECT_EQ(over.code, 0) << over.said;
    expect_equal(four, one);
  }
}

// Of four layers, in four micro-batches.
const std::string kDeep = "--set accumulation=4 --set model.decoder.stack.num_layers=4 ";

// Where ranks differ in pipeline only, each computes what one rank does: bit for bit, but for parameters that several stages
// use, whose gradients are summed in another order.
TEST_F(TrainOverRanks, PipelinesGiveTheBitsOfOneRank) {
  ASSERT_EQ(train("one", "--steps 6 " + kDeep).code, 0);
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zero_bubble"}) {
    const Result result =
        train(schedule, "--steps 6 --mesh pipeline=2 --set mesh.schedule=" + schedule + " " + kDeep);
    ASSERT_EQ(result.code, 0) << result.said;
    expect_same_bits(schedule + "/step-00000006", "one/step-00000006");
  }
  const Result four = train("four", "--steps 6 --mesh pipeline=4 " + kDeep);
  ASSERT_EQ(four.code, 0) << four.said;
  expect_same_bits("four/step-00000006", "one/step-00000006");
}

TEST_F(TrainOverRanks, PipelinesGiveTheLossesOfOneRankWithAnyRecipe) {
  const std::vector<std::string> recipes{
      "",
      "--set 'model.decoder.head=TiedHead{}'",  // tied to the embedding
      "--set model.decoder.stack.layer.attention.dropout=0.1",
      "--modify 'Quantize{}' --modify 'Adapt{with=Lora{rank=4}}'",
      "--replace 'FeedForward=MoE{num_experts=4 gating=TopK{k=2 "
      "regularizers=[LossFreeBalancing{},LoadBalancingLoss{}]}}'",
      "--replace 'AdamW=Muon{}' --set learner.ema=Ema{}",
      "--set dtype=f16 --set model.loss=ChunkedLoss{chunk_size=32}",
      "--set 'remat=[RematRule{tag=\"**\" policy=recompute}]'",
  };
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    SCOPED_TRACE(recipes[i]);
    const std::string one = "one" + std::to_string(i);
    const Result alone = train(one, "--steps 6 " + kDeep + recipes[i]);
    EXPECT_EQ(alone.code, 0) << alone.said;
    for (const std::string mesh : {"pipeline=2", "pipeline=2,data=2 --set mesh.schedule=zero_bubble",
                                   "pipeline=2,fsdp=2 --set mesh.schedule=interleaved"}) {
      const std::string name = "p" + std::to_string(i) + mesh.substr(0, mesh.find(' '));
      const Result over = train(name, "--steps 6 --mesh " + mesh + " " + kDeep + recipes[i]);
      EXPECT_EQ(over.code, 0) << mesh << "\n" << over.said;
      expect_equal(name, one, recipes[i].find("f16") == std::string::npos ? 1e-5 : 1e-4);
    }
  }
}

TEST_F(TrainOverRanks, CheckpointsOfPipelinesGoOnOnOtherMeshes) {
  ASSERT_EQ(train("one", "--steps 6 " + kDeep).code, 0);
  const std::string piped = kDeep + "--mesh pipeline=2 ";
  ASSERT_EQ(train("parts", "--steps 3 " + piped).code, 0);
  fs::copy(folder_ + "/parts", folder_ + "/alone", fs::copy_options::recursive);
  ASSERT_EQ(train("first", "--steps 3 " + kDeep).code, 0);
  for (const auto& [name, options] : std::vector<std::pair<std::string, std::string>>{
           {"parts", piped}, {"alone", kDeep + "--allow-rounding"}, {"first", piped + "--allow-rounding"}}) {
    const Result resumed = train(name, "--steps 6 --resume " + options);
    ASSERT_EQ(resumed.code, 0) << name << "\n" << resumed.said;
    expect_same_bits(name + "/step-00000006", "one/step-00000006");
  }
}

TEST_F(TrainOverRanks, PipelinesOfProcessesGiveTheBitsOfThreads) {
  if (!backends::mpi::is_built()) GTEST_SKIP() << "the MPI backend is not built";
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const std::string options = "--steps 4 --mesh pipeline=2,data=2 " + kDeep;
  ASSERT_EQ(train("threads", options).code, 0);
  const Result processes =
      train("processes", options, "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 4");
  ASSERT_EQ(processes.code, 0) << processes.said;
  expect_same_bits("processes/step-00000004", "threads/step-00000004");
}

TEST_F(TrainOverRanks, ResumesToTheSameBitsAndOnOtherMeshes) {
  const std::string mesh = "--mesh data=2,fsdp=2 ";
  for (const auto& [name, options] : std::vector<std::pair<std::string, std::string>>{
           {"whole", "--steps 6 "}, {"twice", "--steps 6 "}, {"parts", "--steps 3 "}})
    ASSERT_EQ(train(name, options + mesh).code, 0);
  expect_same_bits("twice/step-00000006", "whole/step-00000006");
  fs::copy(folder_ + "/parts", folder_ + "/other", fs::copy_options::recursive);
  const Result resumed = train("parts", "--steps 6 --resume " + mesh);
  ASSERT_EQ(resumed.code, 0) << resumed.said;
  expect_same_bits("parts/step-00000006", "whole/step-00000006");
  const Result refused = train("other", "--steps 6 --resume --mesh fsdp=4");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.said, HasSubstr("mesh.data: 2 -> 1"));
  const Result alone = train("other", "--steps 6 --resume --allow-rounding");
  ASSERT_EQ(alone.code, 0) << alone.said;
  expect_equal("other", "whole");
}

std::string of_experts(const std::string& fields) {
  return "--replace 'FeedForward=MoE{num_experts=4 " + fields + "}' ";
}

TEST_F(TrainOverRanks, DividedExpertsGiveTheLossesOfOneRankWithAnyRecipe) {
  const std::vector<std::pair<std::string, double>> recipes{
      {of_experts("gating=TopK{k=2 regularizers=[LossFreeBalancing{},LoadBalancingLoss{}]}") +
           "--set accumulation=2",
       1e-5},
      {of_experts("gating=TopK{k=2 capacity=Capacity{factor=1}} shared=FeedForward{hidden_dim=64}") +
           "--set model.decoder.stack.layer.attention.dropout=0.1",
       1e-5},
      {of_experts("gating=TopK{k=2}") + "--modify 'Quantize{}' --modify 'Adapt{with=Lora{rank=4}}'", 1e-5},
      {of_experts("gating=TopK{k=2}") + "--replace 'AdamW=Muon{}'", 1e-4},
      {of_experts("gating=TopK{k=2}") + "--set dtype=f16", 1e-3},
  };
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    const auto& [recipe, tolerance] = recipes[i];
    SCOPED_TRACE(recipe);
    const std::string one = "one" + std::to_string(i);
    const Result alone = train(one, "--steps 6 " + recipe);
    ASSERT_EQ(alone.code, 0) << alone.said;
    for (const std::string mesh : {"expert=4", "expert=2,model=2", "expert=2,fsdp=2"}) {
      const std::string name = mesh + std::to_string(i);
      const Result over = train(name, "--steps 6 --mesh " + mesh + " " + recipe);
      EXPECT_EQ(over.code, 0) << mesh << "\n" << over.said;
      expect_equal(name, one, tolerance);
    }
  }
}

TEST_F(TrainOverRanks, CheckpointsOfExpertsGoOnOnOtherMeshes) {
  const std::string experts = of_experts("gating=TopK{k=2}"), resume = "--steps 6 --resume --allow-rounding ";
  ASSERT_EQ(train("one", "--steps 6 " + experts).code, 0);
  for (const auto& [before, after] : std::vector<std::pair<std::string, std::string>>{
           {"--mesh expert=2 ", ""}, {"--mesh fsdp=4 ", "--mesh expert=2 "}, {"", "--mesh expert=4 "}}) {
    const std::string name = "from" + before.substr(before.find('=') + 1, 1);
    const Result first = train(name, "--steps 3 " + before + experts);
    ASSERT_EQ(first.code, 0) << first.said;
    const Result resumed = train(name, resume + after + experts);
    ASSERT_EQ(resumed.code, 0) << resumed.said;
    expect_equal(name, "one");
  }
}

// A gradient of DoRA has a part that is known on all ranks, beside one that they add up.
TEST_F(TrainOverRanks, MicroBatchesOfDoraGiveTheLossesOfOneRank) {
  const std::string recipe = "--steps 4 --set accumulation=2 --modify 'Adapt{with=Dora{rank=2}}' ";
  ASSERT_EQ(train("one", recipe).code, 0);
  for (const std::string mesh : {"data=2", "expert=2", "model=2", "expert=2,model=2"}) {
    const Result over = train(mesh, recipe + "--mesh " + mesh);
    ASSERT_EQ(over.code, 0) << over.said;
    expect_equal(mesh, "one");
  }
}

// A half of a weight has as many bytes in f32 as the whole has in 16 bits.
TEST_F(TrainOverRanks, FrozenWeightsIn16BitsAreCutOverModel) {
  const std::string recipe = "--set dtype=bf16 --modify 'Adapt{with=Lora{rank=4}}' ",
                    resume = "--steps 6 --resume --allow-rounding ";
  ASSERT_EQ(train("one", "--steps 6 " + recipe).code, 0);
  for (const std::string mesh : {"model=2", "fsdp=2,model=2"}) {
    const Result whole = train(mesh, "--steps 6 " + recipe + "--mesh " + mesh);
    ASSERT_EQ(whole.code, 0) << whole.said;
    expect_equal(mesh, "one", 5e-3);
    const std::string parts = "parts-" + mesh;
    ASSERT_EQ(train(parts, "--steps 3 " + recipe + "--mesh " + mesh).code, 0);
    const Result alone = train(parts, resume + recipe);
    ASSERT_EQ(alone.code, 0) << alone.said;
    expect_equal(parts, "one", 5e-3);
  }
}

TEST_F(TrainOverRanks, CheckpointsOfDividedSequencesGoOnOnOtherMeshes) {
  const std::string mesh = "--mesh seq=4 --set mesh.attention=ring ";
  ASSERT_EQ(train("one", "--steps 6").code, 0);
  ASSERT_EQ(train("whole", "--steps 6 " + mesh).code, 0);
  ASSERT_EQ(train("parts", "--steps 3 " + mesh).code, 0);
  expect_equal("whole", "one");
  for (const std::string to : {"alone", "other"})
    fs::copy(folder_ + "/parts", folder_ + "/" + to, fs::copy_options::recursive);
  const Result resumed = train("parts", "--steps 6 --resume " + mesh);
  ASSERT_EQ(resumed.code, 0) << resumed.said;
  expect_same_bits("parts/step-00000006", "whole/step-00000006");
  const Result alone = train("alone", "--steps 6 --resume --allow-rounding");
  ASSERT_EQ(alone.code, 0) << alone.said;
  expect_equal("alone", "whole");
  const Result other = train("other", "--steps 6 --resume --allow-rounding --mesh fsdp=2,seq=2");
  ASSERT_EQ(other.code, 0) << other.said;
  expect_equal("other", "whole");
}

// A rank's tokens lie apart among those of all rows, one run of each, and what is dropped depends on where they lie.
TEST_F(TrainOverRanks, DropoutOverSequencesGivesTheLossesOfOneRank) {
  const std::vector<std::string> recipes{
      "--modify 'Wrap{where=\"**.{attention,feed_forward}\" with=Dropout{rate=0.2} slot=base}'",
      "--modify 'Wrap{where=\"**.{attention,feed_forward}\" with=StochasticDepth{rate=0.3} slot=base}'",
      "--modify 'Adapt{with=Lora{rank=4 dropout=0.2}}'",
  };
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    SCOPED_TRACE(recipes[i]);
    const std::string one = "one" + std::to_string(i);
    ASSERT_EQ(train(one, "--steps 4 " + recipes[i]).code, 0);
    for (const std::string mesh : {"seq=2", "data=2,seq=2", "seq=2 --set mesh.sequence_order=zigzag"}) {
      const std::string over = "over" + std::to_string(i) + (mesh.size() > 12 ? "zigzag" : mesh);
      const Result result = train(over, "--steps 4 --mesh " + mesh + " " + recipes[i]);
      ASSERT_EQ(result.code, 0) << result.said;
      expect_equal(over, one);
    }
  }
}

TEST_F(TrainOverRanks, SequencesInZigzagResumeToTheSameBits) {
  const std::string mesh = "--mesh data=2,seq=2 --set mesh.sequence_order=zigzag ";
  ASSERT_EQ(train("one", "--steps 4").code, 0);
  for (const auto& [name, options] : std::vector<std::pair<std::string, std::string>>{
           {"whole", "--steps 4 "}, {"twice", "--steps 4 "}, {"parts", "--steps 2 "}})
    ASSERT_EQ(train(name, options + mesh).code, 0);
  expect_equal("whole", "one");
  expect_same_bits("twice/step-00000004", "whole/step-00000004");
  const Result refused = train("parts", "--steps 4 --resume --mesh data=2,seq=2");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.said, HasSubstr("mesh.sequence_order: \"zigzag\" -> \"contiguous\""));
  const Result resumed = train("parts", "--steps 4 --resume " + mesh);
  ASSERT_EQ(resumed.code, 0) << resumed.said;
  expect_same_bits("parts/step-00000004", "whole/step-00000004");
}

TEST_F(TrainOverRanks, ProcessesGiveTheBitsOfThreads) {
  if (!backends::mpi::is_built()) GTEST_SKIP() << "the MPI backend is not built";
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const std::string launcher = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 4";
  ASSERT_EQ(train("threads", "--steps 5 --mesh data=2,fsdp=2").code, 0);
  const Result processes = train("processes", "--steps 5 --mesh data=2,fsdp=-1", launcher);
  ASSERT_EQ(processes.code, 0) << processes.said;
  expect_same_bits("processes/step-00000005", "threads/step-00000005");
  const Result emulated = train("emulated",
                                "--steps 5 --mesh data=2,fsdp=-1 --checked --slow 3:2 "
                                "--link 'latency=0.2ms bandwidth=100MB/s'",
                                launcher);
  ASSERT_EQ(emulated.code, 0) << emulated.said;
  expect_same_bits("emulated/step-00000005", "threads/step-00000005");
  const Result wrong = train("wrong", "--steps 5 --mesh data=3", launcher);
  EXPECT_NE(wrong.code, 0);
  EXPECT_THAT(wrong.said, HasSubstr("must have as many ranks as the job, 4, such as data=4; found 3"));
  EXPECT_EQ(wrong.said.find("as many ranks"), wrong.said.rfind("as many ranks")) << "said once";
}

TEST_F(TrainOverRanks, LinksSlowRanksAndWhatOverlapsChangeNoBit) {
  const std::string common = "--steps 3 --mesh data=2,fsdp=2 ";
  ASSERT_EQ(train("plain", common).code, 0);
  for (const auto& [name, options] : std::vector<std::pair<std::string, std::string>>{
           {"waits", "--no-overlap"},
           {"slow", "--slow 1:3 --checked"},
           {"link", "--link 'latency=0.2ms bandwidth=100MB/s jitter=50us'"}}) {
    const Result result = train(name, common + options);
    EXPECT_EQ(result.code, 0) << result.said;
    expect_same_bits(name + "/step-00000003", "plain/step-00000003");
  }
}

// What differs, or fails, on one rank is one line, and ends all.
TEST_F(TrainOverRanks, WhatIsWrongOnOneProcessIsToldOnce) {
  if (!backends::mpi::is_built()) GTEST_SKIP() << "the MPI backend is not built";
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const std::string launcher = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 1";
  std::ofstream(folder_ + "/other.txt") << std::ifstream(folder_ + "/text.txt").rdbuf() << "more";
  fs::copy_file(MESHLOOM_BINARY, folder_ + "/other");
  std::ofstream(folder_ + "/other", std::ios::app) << "x";
  const std::string fixed = " --set fit=false --set hardware_rules=false";
  struct Case {
    std::string program, data, options, message;
  };
  const std::vector<Case> cases{
      {MESHLOOM_BINARY, "other.txt", "", "must have the data of rank 0"},
      {MESHLOOM_BINARY, "missing.txt", "", "the file must be readable"},
      {MESHLOOM_BINARY, "text.txt", " --lr 0.1",
       "must have the recipe's learner.peak_learning_rate of rank 0"},
      {MESHLOOM_BINARY, "text.txt", " --memory 100KiB", "out of memory on device cpu"},
      {folder_ + "/other", "text.txt", "", "must have the program of rank 0"},
      {MESHLOOM_BINARY, "text.txt", " --device cpu:3", "the index must be below the number of devices"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.message);
    std::string device = one.options.find("--device") == std::string::npos ? " --device cpu" : "";
    const Result result =
        train("wrong",
              "--steps 2 --mesh fsdp=2" + fixed + " : -n 1 " + one.program + " train tiny --data " + folder_ +
                  "/" + one.data + " --batch 8 --sample 0 --quiet --out " + folder_ +
                  "/wrong --steps 2 --mesh fsdp=2" + fixed + device + one.options,
              launcher);
    EXPECT_NE(result.code, 0);
    EXPECT_NE(result.code, 124) << "timed out";
    EXPECT_THAT(result.said, HasSubstr("rank 1 ("));
    EXPECT_THAT(result.said, HasSubstr(one.message));
    EXPECT_EQ(result.said.find(one.message), result.said.rfind(one.message)) << result.said;
  }
}

// Evaluation is of the parameters after the last exchange, over the rows of all islands.
TEST_F(TrainOverRanks, IslandsThatExchangeEveryStepAreDataParallel) {
  const std::string sgd =
      "--steps 8 --set eval_every=1 --set 'learner=Sgd{peak_learning_rate=0.1,clip_norm=0}' "
      "--set model.decoder.stack.layer.attention.dropout=0.1 ";
  const std::string always = "--set mesh.outer.every=1 --set mesh.outer.rate=1 --set mesh.outer.momentum=0 ";
  ASSERT_EQ(train("data", sgd + "--mesh data=2").code, 0);
  const std::vector<double> want = losses("data", "eval_loss");
  ASSERT_EQ(want.size(), 8U);
  for (const std::string mesh : {"islands=2", "islands=2,fsdp=2", "islands=4 --set accumulation=2"}) {
    const std::string name = "i" + mesh.substr(0, mesh.find(' '));
    const Result over = train(name, sgd + always + "--mesh " + mesh);
    EXPECT_EQ(over.code, 0) << over.said;
    const std::vector<double> got = losses(name, "eval_loss");
    ASSERT_EQ(got.size(), want.size()) << mesh;
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-5) << mesh << ", step " << i;
  }
}

// In the middle of a round, with momentum and errors that are carried over, of parts that were exchanged at other times.
TEST_F(TrainOverRanks, IslandsResumeToTheSameBits) {
  const std::string mesh =
      "--mesh islands=2,fsdp=2 --set mesh.outer.every=4 --set mesh.outer.dtype=int8 --set "
      "mesh.outer.parts=2 --set mesh.outer.rate=0.7 --set mesh.outer.momentum=0.9 ";
  const Result whole = train("whole", "--steps 9 " + mesh);
  ASSERT_EQ(whole.code, 0) << whole.said;
  ASSERT_EQ(train("parts", "--steps 5 " + mesh).code, 0);
  const Result resumed = train("parts", "--steps 9 --auto-resume " + mesh);
  EXPECT_EQ(resumed.code, 0) << resumed.said;
  expect_equal("parts", "whole", 0);
  expect_same_bits("parts/step-00000009", "whole/step-00000009");
  // Other ranks inside of an island change rounding only; other islands are another run.
  const Result other =
      train("parts",
            "--steps 10 --resume --allow-rounding --mesh islands=2,data=2 --set mesh.outer.every=4 "
            "--set mesh.outer.dtype=int8 --set mesh.outer.parts=2 --set mesh.outer.rate=0.7 --set "
            "mesh.outer.momentum=0.9");
  EXPECT_EQ(other.code, 0) << other.said;
  const Result refused = train("whole", "--steps 10 --resume --allow-rounding --mesh data=2");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.said, HasSubstr("mesh.islands: 2 -> 1"));
  const Result anew = train("anew", "--steps 2 --mesh data=2 --init " + folder_ + "/whole");
  EXPECT_EQ(anew.code, 0) << anew.said;
}

TEST_F(TrainOverRanks, WhatIslandsLearnLastIsSaid) {
  EXPECT_THAT(train("short", "--steps 3 --mesh islands=2").said,
              HasSubstr("3 steps are too few for an exchange of all islands: mesh.outer.every is 50"));
  EXPECT_THAT(train("rest", "--steps 3 --mesh islands=2 --set mesh.outer.every=2").said,
              HasSubstr("islands exchange after step 2 last: what they learn in the 1 steps after it"));
}

// Two micro-batches a step: what rounding lost of one goes into the next, and into the next step.
TEST_F(TrainOverRanks, GradientsInFewerBitsResumeToTheSameBits) {
  const std::string int8 = "--set mesh.gradient_dtype=int8 --set accumulation=2 ",
                    mesh = "--mesh data=2,fsdp=2 " + int8,
                    processes = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 4";
  ASSERT_EQ(train("f32", "--steps 6 --set accumulation=2 --mesh data=2,fsdp=2").code, 0);
  for (const auto& [name, steps] :
       std::vector<std::pair<std::string, std::string>>{{"whole", "6 "}, {"parts", "3 "}})
    ASSERT_EQ(train(name, "--steps " + steps + mesh).code, 0);
  fs::copy(folder_ + "/parts", folder_ + "/other", fs::copy_options::recursive);
  const Result resumed = train("parts", "--steps 6 --resume " + mesh);
  EXPECT_EQ(resumed.code, 0) << resumed.said;
  expect_same_bits("parts/step-00000006", "whole/step-00000006");
  expect_equal("whole", "f32", 0.02);
  EXPECT_NE(losses("whole"), losses("f32"));
  if (backends::mpi::is_built() && std::system("command -v mpirun > /dev/null") == 0) {
    const Result over = train("processes", "--steps 6 " + mesh, processes);
    EXPECT_EQ(over.code, 0) << over.said;
    expect_same_bits("processes/step-00000006", "whole/step-00000006");
  }
  // What rounding lost is not carried over to other ranks.
  const Result refused = train("other", "--steps 6 --resume --mesh data=2,fsdp=2 --set accumulation=2");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.said, HasSubstr("mesh.gradient_dtype: \"int8\" -> \"f32\""));
  for (const std::string& options :
       {"--steps 4 --mesh data=2 " + int8, std::string("--steps 5 --set accumulation=2"),
        "--steps 6 --mesh fsdp=2 " + int8}) {
    const Result changed = train("other", "--resume --allow-rounding " + options);
    EXPECT_EQ(changed.code, 0) << options << "\n" << changed.said;
    EXPECT_EQ(changed.said.find("what rounding lost of gradients is not carried over") != std::string::npos,
              options.find("--mesh fsdp=2") == std::string::npos)  // after f32
        << options;
  }
  expect_equal("other", "f32", 0.02);
}

TEST_F(TrainOverRanks, BadMeshesAreRefused) {
  const std::vector<std::pair<std::string, std::string>> bad{
      {"--mesh data=3", "a multiple of its 3 ranks of data; found 8 rows"},
      {"--mesh data=2,data=2", "must name an axis once"},
      {"--mesh dta=2", "did you mean 'data'"},
      {"--mesh data", "such as data=2,fsdp=4"},
      {"--mesh data=-1", "-1 needs the number of ranks"},
      {"--mesh data=-1,fsdp=-1 --ranks 4", "may have one -1"},
      {"--mesh data=-1,fsdp=3 --ranks 4", "must divide the 4 ranks; found 3"},
      {"--mesh seq=3",
       "the axis seq must divide the 64 tokens of 'tokens'; 63 or 66 tokens would do; found seq=3"},
      {"--mesh seq=4 --set mesh.attention=all_to_all", "must divide the heads that a rank has"},
      {"--mesh seq=6 --set mesh.sequence_order=zigzag",
       "in zigzag, twice the axis seq must divide the 64 tokens of 'tokens'; 60 or 72 tokens would do; found "
       "seq=6"},
      {"--mesh seq=2 --set mesh.attention=all_to_all --set mesh.sequence_order=zigzag",
       "which are balanced in contiguous order; gather and ring take tokens in zigzag; found zigzag"},
      {"--mesh seq=2 --set mesh.sequence_order=striped", "must be contiguous or zigzag"},
      {"--mesh seq=2 --set mesh.attention=rings", "must be gather, all_to_all or ring"},
      {"--mesh expert=4 --replace 'FeedForward=MoE{num_experts=6}'",
       "the axis expert must divide the 6 experts; 3 and 6 do; found expert=4"},
      {"--mesh pipeline=2", "needs at least 2 micro-batches (accumulation)"},
      {"--mesh pipeline=4 --set accumulation=4", "the model has 2 layers, so that pipeline=2 would fit"},
      {"--mesh pipeline=2 --set accumulation=2 --set mesh.schedule=interleaved",
       "the model has 2 layers, so that pipeline=1 would fit"},
      {"--mesh pipeline=2 --set accumulation=2 --set mesh.schedule=1f1p", "must be gpipe, 1f1b"},
      {"--mesh data=2 --ranks 4", "must have as many ranks as the job, 4, such as data=4; found 2"},
      {"--mesh data=3,fsdp=2 --ranks 8", "the job, 8, such as data=4,fsdp=2; found 6"},
      {"--mesh data=3,fsdp=3 --ranks 8", "the job, 8, such as data=8; found 9"},
      {"--mesh data=0", "must have at least one rank"},
      {"--mesh islands=3", "a multiple of its 3 islands; found 8 rows"},
      {"--mesh islands=2,pipeline=2 --set accumulation=4", "not built yet for this axis; found pipeline"},
      {"--mesh islands=2 --set learner.ema=Ema{}", "not built yet for moving averages; found learner.ema"},
      {"--mesh islands=2 --set mesh.outer.parts=9", "there are 3; found 9"},
      {"--mesh islands=2 --set mesh.outer.parts=60", "at most mesh.outer.every"},
      {"--mesh islands=2 --set mesh.outer.dtype=int4", "must be f32, bf16 or int8"},
      {"--mesh islands=2 --set mesh.outer.momentum=1", "mesh.outer.momentum"},
      {"--mesh data=2 --set mesh.gradient_dtype=int4", "must be f32, bf16 or int8"},
      {"--mesh data=2 --set mesh.gradient_dtype=int8 --set dtype=f16",
       "mesh.gradient_dtype: must be f32 where the loss is scaled"},
      {"--mesh data=2 --set param_dtype=bf16",
       "several ranks are not built yet for this option; found param_dtype=bf16"},
      {"--mesh data=2 --sample-every 1", "needs a run of one rank"},
      {"--mesh data=2 --link 'latency=1ms bandwidth=0MB/s'",
       "--link: bandwidth must be above zero; found '0MB/s'"},
      {"--mesh data=2 --link 'latency=1ms bandwidth=-5MB/s'", "bandwidth must be above zero; found '-5MB/s'"},
      {"--mesh data=2 --slow 2:3", "--slow: a rank must be from 0 to 1; found '2:3'"},
      {"--mesh data=2 --slow 1:0.5", "--slow: a factor must be at least 1; found '1:0.5'"},
      {"--checked", "--checked: needs several ranks (--mesh, --ranks); found 1 rank"},
  };
  for (const auto& [options, message] : bad) {
    const Result result = train("bad", "--steps 2 " + options);
    EXPECT_EQ(result.code, 1) << options << "\n" << result.said;
    EXPECT_THAT(result.said, HasSubstr(message)) << options;
  }
}

}  // namespace
}  // namespace meshloom::tests
