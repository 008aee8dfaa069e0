// `meshloom bench plans`: reading tables, features of plans, the fit, and what is printed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/plans/features.h"
#include "bench/plans/model.h"
#include "bench/plans/report.h"
#include "bench/plans/runs.h"
#include "bench/plans/validate.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
#include "trainer/compose/compose.h"

namespace meshloom::bench {
namespace {

using testing::HasSubstr;
using tests::meshloom;
using tests::message_of;

const std::string kHeader =
    "source,model,n_params,layers,d_model,heads,head_dim,kv_heads,ffn,mlp_gated,vocab,seq,moe,chips,chip_"
    "type,dp,fsdp,tp,pp,cp,ep,"
    "vp,sharding,micro_batch,grad_accum,global_batch_seqs,precision,remat,step_time_s,peak_mem_gib,grade\n";

struct RunRow {
  std::string source = "s", parameters, layers = "4", moe, chips = "8", chip = "H100 80GB", fsdp = "8", tp,
              pp, cp, ep, sharding, micro = "2", accumulation, global = "16", precision = "bf16",
              remat = "none", seconds = "0.5", gib;
  std::string text() const {
    return source + ",m," + parameters + "," + layers + ",1024,8,128,2,4096,1,32000,2048," + moe + "," +
           chips + "," + chip + ",," + fsdp + "," + tp + "," + pp + "," + cp + "," + ep + ",," + sharding +
           "," + micro + "," + accumulation + "," + global + "," + precision + "," + remat + "," + seconds +
           "," + gib + ",A\n";
  }
  PublishedRun run() const { return parse_published_runs(kHeader + text(), "t.csv").at(0); }
};

TEST(PublishedRuns, FieldsAreRead) {
  RunRow row;
  row.source = "\"a, \"\"b\"\"\nc\"";
  row.gib = "20.5";
  const std::string text = kHeader + row.text() + "\r\n" + RunRow{}.text();
  const std::vector<PublishedRun> runs = parse_published_runs(text, "t.csv");
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].source, "a, \"b\"\nc");
  EXPECT_EQ(runs[0].peak_gib, 20.5);
  EXPECT_EQ(runs[0].line, 2);
  EXPECT_EQ(runs[1].line, 5);
  EXPECT_EQ(runs[1].fsdp, 8);
  EXPECT_EQ(runs[1].kv_heads, 2);
}

TEST(PublishedRuns, MicroBatchesAreOfRanksOrOfChips) {
  EXPECT_EQ(RunRow{}.run().accumulation, 1);
  EXPECT_EQ((RunRow{.micro = "1"}).run().accumulation, 2);
  const PublishedRun of_chip = RunRow{.fsdp = "4", .tp = "2", .micro = "2"}.run();  // 16 sequences on 8 chips
  EXPECT_EQ(of_chip.micro_batch, 4);
  EXPECT_EQ(of_chip.accumulation, 1);
  const PublishedRun stated = RunRow{.micro = "1", .accumulation = "2"}.run();
  EXPECT_EQ(stated.micro_batch, 1);
  const PublishedRun pipeline = RunRow{.fsdp = "", .pp = "4", .micro = "8"}.run();  // of a rank and step
  EXPECT_EQ(pipeline.micro_batch, 1);
  EXPECT_EQ(pipeline.accumulation, 8);
  EXPECT_EQ((RunRow{.fsdp = "", .sharding = "FSDP"}).run().fsdp, 8);
  EXPECT_EQ((RunRow{.fsdp = ""}).run().data, 8);
}

TEST(PublishedRuns, WhatIsWrongIsToldWithItsPlace) {
  const auto message = [](const std::string& text) {
    return message_of([&] { parse_published_runs(text, "t.csv"); });
  };
  EXPECT_THAT(message(""), HasSubstr("t.csv:1:1: must begin with the names of the columns"));
  EXPECT_THAT(message(kHeader), HasSubstr("t.csv:2:1: must have a row"));
  EXPECT_THAT(message("source,model\ns,m\n"), HasSubstr("t.csv:1:1: must have the column n_params"));
  EXPECT_THAT(message("source,source\n"), HasSubstr("t.csv:1:8: a column must have a name of its own"));
  EXPECT_THAT(message(kHeader + "s,m\n"), HasSubstr("t.csv:2:3: a row must have 31 fields"));
  EXPECT_THAT(message(kHeader + "\"s"), HasSubstr("t.csv:2:1: a quoted field must end with a quote"));
  EXPECT_THAT(message(kHeader + "\"s\"x"), HasSubstr("t.csv:2:4: a comma or the end"));
  EXPECT_THAT(message(kHeader + RunRow{.layers = "four"}.text()),
              HasSubstr("t.csv:2:6, column layers: must be a number"));
  EXPECT_THAT(message(kHeader + RunRow{.layers = "4.5"}.text()),
              HasSubstr("column layers: must be an integer"));
  EXPECT_THAT(message(kHeader + RunRow{.layers = "0"}.text()),
              HasSubstr("column layers: must be an integer from 1"));
  EXPECT_THAT(message(kHeader + RunRow{.seconds = "-1"}.text()),
              HasSubstr("column step_time_s: must be a number"));
  EXPECT_THAT(message(kHeader + RunRow{.seconds = "nan"}.text()),
              HasSubstr("column step_time_s: must be a number"));
  EXPECT_THAT(message(kHeader + RunRow{.chip = "Z80"}.text()),
              HasSubstr("column chip_type: must begin with one of A100"));
  EXPECT_THAT(message(kHeader + RunRow{.moe = "many"}.text()), HasSubstr("column moe"));
  EXPECT_THAT(message(kHeader + RunRow{.tp = "3"}.text()),
              HasSubstr("column chips: must be a multiple of tp x pp x cp"));
  EXPECT_THAT(message(kHeader + RunRow{.fsdp = "3"}.text()),
              HasSubstr("column fsdp: must divide the 8 ranks"));
  EXPECT_THAT(message(kHeader + RunRow{.global = "12"}.text()), HasSubstr("column global_batch_seqs"));
}

class Plans : public testing::Test {
 protected:
  Plans() {
    kernels::add_contracts(catalog_);
    register_backends(devices_, catalog_);
  }
  StepFeatures features(const PublishedRun& run, std::int64_t ranks = 4) const {
    return FeatureComposer(devices_, catalog_, ranks).compose(run);
  }
  trainer::Plan whole(const PublishedRun& run) const {
    const trainer::TrainerConfig config = recipe_of(run);
    trainer::ComposeOptions options = config.compose_options();
    options.evaluation = false;
    options.enforce_memory = false;
    hal::DeviceInfo device = devices_.open("null", "h100")->info();
    return trainer::compose_training(*config.model, *config.learner, options, catalog_, device);
  }
  static double flops(const StepFeatures& features) {
    double sum = 0;
    for (const auto& [cost, count] : features.calls) sum += cost.flops * count;
    return sum;
  }
  static double bytes(const StepFeatures& features, const std::string& what) {
    double sum = 0;
    for (const GroupMoves& group : features.moves)
      if (group.what == what) sum += group.bytes;
    return sum;
  }

  hal::Registry devices_;
  kernels::Catalog catalog_;
};

TEST_F(Plans, TwoLayersStandForAllLayers) {
  for (const char* remat : {"none", "full", "selective per-op"})
    for (const char* micro : {"2", "1"}) {
      const PublishedRun run =
          RunRow{.chips = "4", .fsdp = "4", .micro = micro, .global = "8", .remat = remat}.run();
      const trainer::Plan plan = whole(run);
      const StepFeatures extended = features(run);
      double whole_flops = plan.update_flops(), moved = 0;
      for (const trainer::UpdateStep& step : plan.steps.update)
        whole_flops += static_cast<double>(step.times) * plan.recompute_flops(step.step);
      for (const auto& [axes, one] : plan.update_moved_bytes()) moved += static_cast<double>(one.out);
      EXPECT_NEAR(flops(extended) / whole_flops, 1, 1e-3) << remat;
      EXPECT_NEAR((bytes(extended, "gather") + bytes(extended, "reduce")) / moved, 1, 0.01) << remat;
      EXPECT_NEAR(extended.peak_bytes / static_cast<double>(plan.peak_bytes), 1, 0.05) << remat;
    }
}

TEST_F(Plans, FewRanksStandForMany) {
  for (const RunRow& row : {RunRow{.chips = "16", .fsdp = "16", .global = "32"},
                            RunRow{.chips = "16", .fsdp = "8", .global = "32"},
                            RunRow{.chips = "16", .fsdp = "", .global = "32"}}) {
    const PublishedRun run = row.run();
    const StepFeatures few = features(run, 4), many = features(run, 16);
    EXPECT_NEAR(flops(few) / flops(many), 1, 1e-3);
    for (const char* what : {"gather", "reduce"})
      EXPECT_NEAR(bytes(few, what) / bytes(many, what), 1, 0.02) << what;
    EXPECT_NEAR(few.peak_bytes / many.peak_bytes, 1, 0.1);
  }
}

TEST_F(Plans, WhatIsNotComposedIsSaid) {
  EXPECT_TRUE(features(RunRow{}.run()).simplified.empty());
  const StepFeatures pipeline = features(RunRow{.fsdp = "4", .pp = "2", .micro = "1"}.run());
  EXPECT_EQ(pipeline.simplified.size(), 1U);
  EXPECT_EQ(pipeline.bubble, 1.0 / 4);
  EXPECT_GT(bytes(pipeline, "pipeline"), 0);
  const StepFeatures experts = features(RunRow{.moe = "8e top2", .fsdp = "8", .ep = "4"}.run());
  EXPECT_GT(bytes(experts, "experts"), 0);
  // The FLOPs of attention are those of the whole sequence.
  const StepFeatures context = features(RunRow{.fsdp = "4", .cp = "2", .micro = "2", .global = "8"}.run());
  EXPECT_NEAR(flops(context) / context.model_flops, 1, 0.03);
  EXPECT_GT(bytes(context, "context"), 0);
}

// Runs whose times are those of some constants.
std::vector<PlannedRun> planted_runs(const std::vector<double>& logs) {
  std::vector<PlannedRun> runs;
  const std::map<std::string, double> sources = {{"a", 1}, {"b", 1.3}, {"c", 0.8}};
  for (const auto& [source, factor] : sources)
    for (int i = 0; i < 12; ++i) {
      PlannedRun run;
      run.run.source = source;
      run.features.chip = *find_chip(i % 2 == 0 ? "H100 80GB" : "A100 80GB");
      run.features.profile = hal::find_profile(run.features.chip.profile);
      const double size = 1024 << (i % 3);
      trainer::CallCost product{.kind = trainer::CallCost::Kind::matmul, .m = 2 * size, .n = size, .k = size};
      product.flops = 2 * product.m * product.n * product.k;
      trainer::CallCost copy{.bytes = 8 * size * size};
      run.features.calls = {{product, 100.0 + 10 * i}, {copy, 300.0 + 100 * (i % 5)}};
      run.features.model_flops = product.flops * 100;
      run.run.seconds = factor * predicted_seconds(run.features, logs);
      runs.push_back(run);
    }
  return runs;
}

std::vector<std::size_t> all_of(const std::vector<PlannedRun>& runs) {
  std::vector<std::size_t> rows(runs.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  return rows;
}

std::vector<double> planted_logs() {
  std::vector<double> logs = prior_fit().logs;
  for (std::size_t i = 0; i < logs.size(); ++i) logs[i] += (i % 2 == 0 ? 0.8 : -0.8) * constants()[i].spread;
  return logs;
}

TEST(FitConstants, FindsPlantedOnes) {
  std::vector<PlannedRun> runs = planted_runs(planted_logs());
  runs[5].run.seconds *= 4;  // a run that was set up badly moves nothing
  const Fit fit = fit_constants(runs, all_of(runs), prior_fit());
  double off = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i == 5) continue;
    EXPECT_NEAR(predicted_seconds(runs[i], fit) / runs[i].run.seconds, 1, 0.03) << i;
    off = std::max(off, std::abs(predicted_seconds(runs[i], prior_fit()) / runs[i].run.seconds - 1));
  }
  EXPECT_GT(off, 0.2);  // without the fit
  EXPECT_NEAR(fit.sources.at("b") - fit.sources.at("a"), std::log(1.3), 0.05);
  EXPECT_EQ(fit_constants(runs, all_of(runs), prior_fit()).logs, fit.logs);
}

TEST(ValidateFit, HeldRowsAreNotSeen) {
  const std::vector<PlannedRun> runs = planted_runs(planted_logs());
  const std::optional<Validation> validation = validate(runs, {});
  ASSERT_TRUE(validation);
  ASSERT_EQ(validation->sources.size(), 3U);
  EXPECT_LT(validation->planner.folds, 0.05);
  EXPECT_LT(validation->planner.folds, validation->constant.folds);
  EXPECT_LT(*validation->planner.unseen_two, 0.06);
  EXPECT_GT(*validation->planner.unseen, *validation->planner.unseen_two);
  // A source of its own says nothing of others: its factor is known from its own rows only.
  EXPECT_GT(*validation->sources[1].planner.unseen, 0.1);
  // A row's fold has not seen it.
  std::vector<PlannedRun> off = runs;
  off[7].run.seconds *= 1.5;
  EXPECT_NEAR(validate(off, {})->folds[7] / validation->folds[7], 1, 1e-6);
  const std::vector<PlannedRun> few(runs.begin(), runs.begin() + 4);
  EXPECT_THAT(message_of([&] { validate(few, {}); }), HasSubstr("needs at least five rows"));
  int asked = 0;
  EXPECT_FALSE(validate(runs, {[&] { return ++asked > 2; }, {}}));
}

TEST(BenchPlans, PrintsATableAndJson) {
  const tests::Scratch scratch;
  std::string text = kHeader;
  const char* seconds[] = {"0.05", "0.06", "0.07", "0.06"};
  for (const char* one : seconds) {
    text += RunRow{.source = "one", .seconds = one, .gib = "20"}.text();
    text +=
        RunRow{.source = "two", .chip = "A100 80GB", .micro = "1", .remat = "full", .seconds = one}.text();
  }
  const std::string table = scratch.file("runs.csv", text);
  const tests::Outcome outcome =
      meshloom("bench plans " + table + " --quiet --json - --features " + scratch.path("f.json"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("schema"), "meshloom-plans/1");
  EXPECT_EQ(json.at("sources").size(), 2U);
  EXPECT_EQ(json.at("rows").size(), 8U);
  EXPECT_GT(json.at("errors").at("planner").at("unseen_after_two"), 0);
  EXPECT_TRUE(json.at("errors").at("constant").at("unseen").is_null());  // the chips of each are its own
  EXPECT_EQ(nlohmann::json::parse(tests::read_text(scratch.path("f.json"))).size(), 8U);
  const tests::Outcome printed = meshloom("bench plans " + table + " --quiet");
  EXPECT_THAT(printed.out, HasSubstr("8 runs of 2 sources"));
  EXPECT_THAT(printed.out, HasSubstr("GiB of a chip, of 4 rows"));
  const tests::Outcome bad = meshloom("bench plans " + scratch.file("bad.csv", kHeader) + " --quiet");
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.errors(), testing::ElementsAre(HasSubstr("bad.csv:2:1: must have a row")));
}

}  // namespace
}  // namespace meshloom::bench
