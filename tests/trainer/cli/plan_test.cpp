// The output of `meshloom plan`.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

// On a shipped profile, because every process measures the host's numbers again.
nlohmann::json plan(const std::string& more = {}) {
  const Outcome outcome =
      meshloom("plan tiny --device null --as h100 --set hardware_rules=false --json " + more);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

TEST(Plan, ANamedVariantChangesAndNothingElse) {
  const nlohmann::json before = plan();
  const int calls = before["variants"]["matmul"]["calls"]["gpu_tile"];
  for (const std::string rule :
       {"--set 'kernels=[KernelRule{op=matmul path=\"**.q_proj\" variant=naive}]'",
        "--rule 'null-.* => SetKernel{op=matmul path=\"**.q_proj\" variant=naive}'"}) {
    nlohmann::json after = plan(rule);
    nlohmann::json& matmul = after["variants"]["matmul"];
    EXPECT_EQ(matmul["chosen"], nlohmann::json({"gpu_tile", "naive"})) << rule;
    const int named = matmul["calls"]["naive"];
    EXPECT_GT(named, 0);
    EXPECT_EQ(matmul["calls"]["gpu_tile"].get<int>() + named, calls);
    matmul = before["variants"]["matmul"];
    nlohmann::json same = before;
    for (const char* time : {"predicted_by", "predicted_mfu", "predicted_step_seconds",
                             "predicted_tokens_per_second", "longest_submission_seconds", "launches"})
      for (nlohmann::json* plan : {&same, &after}) plan->erase(time);
    EXPECT_EQ(nlohmann::json::diff(same, after), nlohmann::json::array()) << rule;
  }
}

TEST(Plan, NoSubmissionIsPredictedToTakeLongerThanItMay) {
  for (const std::string profile : {"rx7900xtx", "arc-b580"}) {
    const nlohmann::json large = nlohmann::json::parse(
        meshloom("plan llama-1b --json --device null:vulkan --as " + profile).out, nullptr, false);
    EXPECT_LE(large["longest_submission_seconds"].get<double>(), 0.05) << profile;
    EXPECT_GT(large["submissions"].get<int>(), 10);
  }
}

TEST(Plan, ANamedVariantThatDoesNotFitIsAnErrorWithItsReason) {
  for (const std::string rule : {"--set 'kernels=[KernelRule{op=matmul variant=trainium_psum}]'",
                                 "--rule 'null-.* => SetKernel{op=matmul variant=trainium_psum}'"}) {
    const Outcome outcome = meshloom("plan tiny --device null --as h100 " + rule);
    EXPECT_EQ(outcome.code, 1) << rule;
    ASSERT_EQ(outcome.errors().size(), 1u) << outcome.err;
    for (const char* part : {"trainium_psum", "must fit", "PSUM"})
      EXPECT_NE(outcome.errors()[0].find(part), std::string::npos) << outcome.errors()[0];
  }
}

TEST(Plan, OfServingSaysWhatFits) {
  const std::string sizes = " --serve --max-length 200 --max-sequences 3 --page-size 16 --step-tokens 24";
  const nlohmann::json served = plan(sizes);
  EXPECT_EQ(served["pages"], 39);  // 13 for each text
  EXPECT_EQ(served["cache_tokens"], 624);
  EXPECT_EQ(served["step_tokens"], nlohmann::json({1, 2, 4, 8, 16, 24}));
  const std::int64_t cache = served["memory"]["cache"], peak = served["peak_bytes"],
                     max_pages = served["max_pages"];
  EXPECT_GT(cache, 0);
  EXPECT_EQ(served["fits"], true);
  // As many pages as it says fit, and one more does not.
  const std::string limited = sizes + " --memory " + std::to_string(peak + 100 * (cache / 39));
  const auto pages = [&](std::int64_t count) {
    return meshloom("plan tiny --device null --as h100 --set hardware_rules=false" + limited + " --pages " +
                    std::to_string(count));
  };
  const nlohmann::json within = plan(limited);
  EXPECT_LT(within["max_pages"].get<std::int64_t>(), max_pages);
  EXPECT_EQ(pages(within["max_pages"]).code, 0);
  const Outcome beyond = pages(within["max_pages"].get<std::int64_t>() + 2);
  EXPECT_EQ(beyond.code, 2);
  EXPECT_NE(beyond.err.find("out of memory"), std::string::npos) << beyond.err;
  EXPECT_NE(beyond.out.find("would fit"), std::string::npos) << beyond.out;
}

TEST(Plan, OfServingSaysWhetherBitsDependOnTheBatch) {
  const auto text = [](const std::string& more) {
    const Outcome outcome = meshloom("plan tiny --serve " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_NE(text("--device cpu").find("whatever else runs: yes\n"), std::string::npos);
  EXPECT_NE(text("--device null:vulkan --as rx7900xtx").find("whatever else runs: no; "), std::string::npos);
  EXPECT_NE(text("--device cpu --no-batch-invariant").find("whatever else runs: no; it was asked for\n"),
            std::string::npos);
  EXPECT_NE(text("--batch-invariant --device null:vulkan --as rx7900xtx").find("whatever else runs: yes\n"),
            std::string::npos);
  const Outcome refused = meshloom(
      "plan tiny --serve --batch-invariant --device null:vulkan --as rx7900xtx --modify 'Quantize{}'");
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("row_exact"), std::string::npos) << refused.err;
  EXPECT_EQ(meshloom("plan tiny --device cpu --pages 3").code, 2) << "without --serve";
}

TEST(Plan, SaysWhichKernelsRunOnF32Copies) {
  // Of a GPU without a matrix unit: those of Vulkan's are used for 16 bits where there are some.
  const nlohmann::json in_bf16 = nlohmann::json::parse(
      meshloom("plan tiny --device null --as rx6800xt --set hardware_rules=false --json "
               "--set dtype=bf16")
          .out,
      nullptr, false);
  EXPECT_EQ(in_bf16["variants"]["flash_attention"]["chosen"], nlohmann::json({"gpu_tile on f32 copies"}));
  EXPECT_EQ(plan()["variants"]["flash_attention"]["chosen"], nlohmann::json({"gpu_tile"}));
}

TEST(Plan, ViewsAreNoCalls) {
  const nlohmann::json json = plan();
  EXPECT_GT(json["views"]["reshape"].get<int>(), 0);
  EXPECT_FALSE(json["variants"].contains("reshape"));
}

TEST(Plan, GradientsAreCountedWhereMostAreHeld) {
  const nlohmann::json json = plan();
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : json["memory"].items()) {
    sum += bytes.get<std::int64_t>();
    EXPECT_GE(json["memory_max"][name], bytes) << name;
  }
  EXPECT_EQ(sum, json["peak_bytes"]);
  EXPECT_GE(json["memory_max"]["gradients"].get<std::int64_t>(), 4 * json["parameters"].get<std::int64_t>());
}

// A device cannot lend more than it has, whatever it runs as.
TEST(Plan, MemoryIsTheSmallerOfDeviceAndProfile) {
  const auto available_bytes = [](const std::string& device) {
    return nlohmann::json::parse(meshloom("plan tiny --json " + device).out, nullptr, false)["device_bytes"]
        .get<std::int64_t>();
  };
  EXPECT_EQ(available_bytes("--device cpu --as h100"),
            std::min(available_bytes("--device cpu"), available_bytes("--device null --as h100")));
}

nlohmann::json plan_of(const std::string& arguments, int code) {
  const Outcome outcome = meshloom("plan --json " + arguments);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

TEST(Plan, ShowsTheStagesOfAPipeline) {
  const std::string arguments =
      "llama-1b --device null --as h100 --batch 16 --set accumulation=8 --mesh pipeline=4";
  const nlohmann::json json = plan_of(arguments, 0);
  ASSERT_EQ(json["stages"].size(), 4U);
  std::size_t layers = 0;
  std::int64_t parameters = 0;
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const nlohmann::json& one = json["stages"][stage];
    layers += one["layers"].size();
    parameters += one["parameters"].get<std::int64_t>();
    EXPECT_EQ(one["in_flight"], 4 - stage);
    EXPECT_GT(one["predicted_seconds"].get<double>(), 0);
  }
  EXPECT_EQ(layers, 16U);
  EXPECT_EQ(parameters, json["parameters"].get<std::int64_t>());
  EXPECT_EQ(json["stages"][0]["peak_bytes"], json["peak_bytes"]);
  const nlohmann::json& bubbles = json["predicted_bubbles"];
  EXPECT_LT(bubbles["interleaved"].get<double>(), bubbles["1f1b"].get<double>());
  EXPECT_LT(bubbles["zero_bubble"].get<double>(), bubbles["1f1b"].get<double>());
  EXPECT_NE(meshloom("plan " + arguments).out.find("\npipeline    1f1b, 8 micro-batches"), std::string::npos);
  EXPECT_EQ(plan_of("tiny --device cpu", 0)["stages"].size(), 0U);
}

// The tensor cores of an H100 multiply bf16 by Vulkan's cooperative matrices; a driver without matrices leaves the rate of f32.
TEST(Plan, TheLowerBoundIsOfTheUnitThatTheKernelsUse) {
  const double f32 = 66.9e12;  // hal/profiles/h100.json
  const auto seconds_per_flop = [](const std::string& device) {
    const nlohmann::json json = plan_of("smollm2-135m --device " + device + " --as h100 --set dtype=bf16", 0);
    const double flops = json["flops_per_step"], floor = json["floor_step_seconds"];
    // The prediction stands beside the floor, below what the kernels can do.
    EXPECT_GT(json["predicted_step_seconds"].get<double>(), floor);
    EXPECT_GT(json["predicted_mfu"].get<double>(), 0);
    EXPECT_LT(json["predicted_mfu"].get<double>(), flops / floor / 989.4e12);
    EXPECT_GT(json["predicted_by"]["fitted"].get<double>(), 0);
    return floor / flops;
  };
  EXPECT_GT(seconds_per_flop("null:vulkan-generic"), 0.9 / f32);
  EXPECT_LT(seconds_per_flop("null:vulkan"), 0.9 / f32);
  const std::string text = meshloom("plan tiny --device null --as h100").out;
  EXPECT_NE(text.find(", floor "), std::string::npos);
  EXPECT_NE(text.find("\npredicted   "), std::string::npos);
  EXPECT_NE(text.find(" tokens/s, MFU "), std::string::npos);
}

// What published runs reach stands apart from what is predicted of Meshloom's kernels, with a label of its own.
TEST(Plan, PublishedEfficienciesAreNamed) {
  const nlohmann::json json = plan_of("smollm2-135m --device null --as h100", 0);
  const double published = json["published_step_seconds"], flops = json["flops_per_step"];
  EXPECT_GT(published, flops / 989.4e12);
  EXPECT_LT(published, json["predicted_step_seconds"].get<double>());
  EXPECT_NE(meshloom("plan smollm2-135m --device null --as h100").out.find("\npublished   "),
            std::string::npos);
  for (const char* without :
       {"smollm2-135m --device null --as h100 --set dtype=f32 --set hardware_rules=false",
        "smollm2-135m --device null --as rx7900xtx"})
    EXPECT_EQ(plan_of(without, 0)["published_step_seconds"], 0) << without;
}

// A device described in a file is planned for as the device itself.
TEST(Plan, OfADescribedDevice) {
  const Outcome described = meshloom("devices --device null:opencl-amd --describe");
  ASSERT_EQ(described.code, 0) << described.err;
  const std::string file = testing::TempDir() + "described.json";
  std::ofstream(file) << described.out;
  const nlohmann::json json = plan_of("tiny --device null:" + file, 0);
  EXPECT_EQ(json["profile"], "mi300x");
  EXPECT_EQ(json["peak_bytes"], plan_of("tiny --device null:opencl-amd", 0)["peak_bytes"]);
  EXPECT_EQ(meshloom("devices --describe").code, 1);
  EXPECT_NE(meshloom("devices --device null:opencl-amd").out.find("AMD Accelerated Parallel Processing"),
            std::string::npos);
}

TEST(Plan, WhatDoesNotFitSaysCommandsThatDo) {
  const nlohmann::json json = plan_of("llama2-7b --device null --as h100", 2);
  EXPECT_FALSE(json["fits"]);
  ASSERT_GE(json["would_help"].size(), 4u);
  const nlohmann::json& first = json["would_help"][0];
  EXPECT_TRUE(first["fits"]);
  bool all_fit = true;
  for (const nlohmann::json& remedy : json["would_help"]) {
    EXPECT_TRUE(all_fit || !remedy["fits"].get<bool>()) << "what suffices stands first";
    all_fit = remedy["fits"];
    EXPECT_LT(remedy["peak_bytes"].get<std::int64_t>(), json["peak_bytes"].get<std::int64_t>());
  }
  // Pasted, the first does what it says.
  const std::string command = first["command"];
  ASSERT_EQ(command.substr(0, 14), "meshloom plan ");
  const nlohmann::json after = plan_of(command.substr(14), 0);
  EXPECT_EQ(after["peak_bytes"], first["peak_bytes"]);
  EXPECT_TRUE(after["fits"]);
  EXPECT_TRUE(after["would_help"].empty());
}

// Without a flag: the rules of the program choose what fits.
TEST(Plan, OfALargeModelFitsByItself) {
  const Outcome text = meshloom("plan llama-1b --device null --as rx7900xtx");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.err.find("note: to fit into 24.00 GiB: "), std::string::npos) << text.err;
  EXPECT_LE(plan_of("llama2-7b --device null --as rx7900xtx --memory 8GiB --modify Quantize{} --modify "
                    "'Adapt{with=Lora{rank=16}}'",
                    0)["peak_bytes"],
            std::int64_t{8} << 30);
  // Nothing fits: the message says the least, and leads with what would help.
  const Outcome small = meshloom("plan llama-1b --device null --as rx7900xtx --memory 4GiB");
  EXPECT_EQ(small.code, 2);
  EXPECT_NE(small.err.find("no choice of micro-batches, remat, chunks of the loss and offload fits into 4.00 "
                           "GiB; the least is"),
            std::string::npos)
      << small.err;
  EXPECT_NE(small.out.find("what would help, with the memory that it needs\n  only adapters"),
            std::string::npos)
      << small.out;
}

TEST(Plan, WhereNothingSufficesAloneSeveralAreCombined) {
  const nlohmann::json json = plan_of("llama2-7b --device null --as rx7900xtx --memory 5GiB", 2);
  const nlohmann::json& first = json["would_help"].at(0);
  EXPECT_TRUE(first["fits"]) << first;
  EXPECT_FALSE(json["would_help"].at(1)["fits"]);
}

TEST(Plan, OfACheckpointIsThatOfItsRecipe) {
  const Scratch scratch;
  const std::string text = scratch.file("text.txt", sample_text(6000)), run = scratch.path("run");
  ASSERT_EQ(
      meshloom(
          "train tiny --device cpu --quiet --sample 0 --steps 1 --set batch=2 --set eval_batches=0 --data " +
          text + " --out " + run)
          .code,
      0);
  EXPECT_EQ(plan_of("--init " + run + " --device null --as h100", 0)["peak_bytes"],
            plan_of("tiny --set batch=2 --set eval_batches=0 --device null --as h100", 0)["peak_bytes"]);
}

// The scores of all tokens are the largest tensor of a model with a large vocabulary: they are never a refusal.
TEST(Plan, ScoresBeyondTheLargestAllocationGoByChunks) {
  const std::string large =
      "plan tiny --device null --as h100 --set model.vocab_size=100000 --set batch=64 --set sequence=512 ";
  for (const std::string more : {"", "--set hardware_rules=false"}) {
    const Outcome outcome = meshloom(large + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("4.00 GiB"), std::string::npos) << outcome.err;
  }
  const Outcome outcome = meshloom(large + "--set hardware_rules=false");
  EXPECT_NE(outcome.err.find("the loss goes by chunks of 8192 tokens"), std::string::npos) << outcome.err;
  // A table of the vocabulary cannot be cut.
  const Outcome table = meshloom(large + "--set model.vocab_size=10000000 --set model.decoder.dim=128");
  EXPECT_EQ(table.code, 1);
  ASSERT_EQ(table.errors().size(), 1u) << table.err;
  EXPECT_NE(table.errors()[0].find("'decoder/embedding/weight'"), std::string::npos) << table.err;
}

}  // namespace
}  // namespace meshloom::tests
