// Statistics, files and the gate, on synthetic samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "bench/cli/html.h"
#include "bench/core/baseline.h"
#include "bench/core/report.h"
#include "bench/measure/statistics.h"
#include "hal/error.h"
#include "kernels/core/rng.h"
#include "tests/bench/damage.h"

namespace meshloom::bench {
namespace {

using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Row row(const std::string& call, double seconds, bool noisy = false) {
  Row r;
  r.op = "matmul";
  r.call = "matmul " + call;
  r.shape = call;
  r.dtype = "f32";
  r.device = "cpu";
  r.variant = "packed";
  r.selected = true;
  r.seconds = r.fastest = seconds;
  r.samples = 9;
  r.noisy = noisy;
  r.flops = 1e9;
  r.bytes = 1e7;
  r.check = "ok";
  return r;
}

Report report_of(std::vector<Row> rows) {
  Report report;
  report.header.set("device", "cpu: a \"processor\" <b>");
  report.ceilings = {1e11, 2e10, 5e-6, 1e-6, "measured"};
  for (Row& r : rows) compute_rates(r, report.ceilings);
  report.rows = std::move(rows);
  return report;
}

TEST(Statistics, MediansQuartilesAndNoise) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(quantile({0, 1, 2, 3, 4}, 0.25), 1);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
  const Summary calm = summarize({10, 10.1, 9.9, 10, 10.05});
  EXPECT_FALSE(calm.noisy);
  EXPECT_DOUBLE_EQ(calm.fastest, 9.9);
  EXPECT_TRUE(summarize({10, 10}).noisy) << "two samples say nothing";
  EXPECT_TRUE(summarize({10, 14, 8, 12, 9}).noisy);
  EXPECT_TRUE(summarize({10, 10, 10, 10, 12, 12, 12, 12}).noisy) << "drifts";
  EXPECT_TRUE(summarize({}).noisy);
}

// The machine gets slower and slower; the ratio does not notice.
TEST(Statistics, PairedRatiosIgnoreDrift) {
  std::vector<double> a, b;
  for (int i = 0; i < 20; ++i) {
    a.push_back(1.0 + i);
    b.push_back(2.0 * (1.0 + i));
  }
  const Ratio ratio = paired_ratio(a, b);
  EXPECT_DOUBLE_EQ(ratio.median, 2);
  EXPECT_DOUBLE_EQ(ratio.spread, 0);
}

TEST(Rows, RatesAndBounds) {
  const Ceilings ceilings{1e11, 2e10, 5e-6, 1e-6, ""};
  Row r = row("a", 20e-3);
  compute_rates(r, ceilings);
  EXPECT_DOUBLE_EQ(r.tflops, 0.05);
  EXPECT_DOUBLE_EQ(r.peak_fraction, 0.5);
  EXPECT_EQ(r.bound, "compute");
  r.flops = 1e6, r.bytes = 2e8;
  compute_rates(r, ceilings);
  EXPECT_EQ(r.bound, "memory");
  EXPECT_DOUBLE_EQ(r.bandwidth_fraction, 0.5);
  r.seconds = 10e-6;
  compute_rates(r, ceilings);
  EXPECT_EQ(r.bound, "launch") << "6 us of 10 are the launch";
  r.calls_per_sample = 100;
  compute_rates(r, ceilings);
  EXPECT_NE(r.bound, "launch");
}

TEST(Rows, NoneIsAboveItsPeak) {
  Ceilings ceilings{1e11, 2e10, 5e-6, 1e-6, ""};
  Row r = row("a", 20e-3);
  r.flops = 8e9;  // four times what was measured
  r.op = "matmul", r.dtype = "f32";
  compute_rates(r, ceilings);
  EXPECT_DOUBLE_EQ(r.peak_fraction, 1);
  EXPECT_TRUE(ceilings.raise(r.op, r.dtype, r.flops / r.seconds));
  EXPECT_FALSE(ceilings.raise(r.op, r.dtype, 1e11)) << "the best counts";
  r.flops = 4e9;
  compute_rates(r, ceilings);
  EXPECT_DOUBLE_EQ(r.peak_fraction, 0.5);
}

TEST(Rows, SharesAreOfTheSelectedRows) {
  std::vector<Row> rows{row("a", 1), row("b", 3), row("b", 100)};
  rows[2].selected = false;
  for (Row& r : rows) r.per_step = 2;
  compute_step_shares(rows);
  EXPECT_DOUBLE_EQ(rows[0].step_share, 0.25);
  EXPECT_DOUBLE_EQ(rows[1].step_share, 0.75);
}

TEST(Json, HasTheSchemaAndReadsBack) {
  Report report = report_of({row("a", 1e-3), row("b", 2e-3, true)});
  report.rows[0].params = {{"tile_m", 96}};
  report.rows[1].check = "wrong";
  report.rows[1].error = std::numeric_limits<double>::infinity();
  report.rows[1].problem = "worst \"element\"\n\xff";
  const std::string text = to_json(report);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["schema"], "meshloom-bench/1");
  for (const char* name :
       {"op", "shape", "dtype", "device", "variant", "seconds", "tflops", "gbs", "peak_fraction",
        "bandwidth_fraction", "bound", "baseline", "ratio", "noisy", "check", "error", "samples", "spread"})
    EXPECT_TRUE(json["rows"][0].contains(name)) << name;
  const Report back = parse_report(text, "test");
  ASSERT_EQ(back.rows.size(), 2u);
  EXPECT_EQ(back.rows[0].call, "matmul a");
  EXPECT_EQ(back.rows[0].params.at("tile_m"), 96);
  EXPECT_DOUBLE_EQ(back.rows[1].seconds, 2e-3);
  EXPECT_TRUE(back.rows[1].noisy);
  EXPECT_EQ(back.header.get("device"), report.header.get("device"));
  EXPECT_DOUBLE_EQ(back.ceilings.flops, 1e11);
}

TEST(Csv, EveryLineHasEveryField) {
  Report report = report_of({row("f32(4, 64), \"x\"", 1e-3)});
  report.rows[0].params["tile_m"] = 96;
  std::istringstream lines(to_csv(report));
  std::string head, line;
  std::getline(lines, head);
  std::getline(lines, line);
  line = std::regex_replace(line, std::regex("\"([^\"]|\"\")*\""), "");
  EXPECT_EQ(std::count(head.begin(), head.end(), ','), std::count(line.begin(), line.end(), ','));
  std::string names;
  const auto json = nlohmann::ordered_json::parse(to_json(report));
  for (const auto& [name, value] : json["rows"][0].items()) names += (names.empty() ? "" : ",") + name;
  EXPECT_EQ(head, names) << "the fields of JSON, in its order";
  EXPECT_THAT(to_csv(report), HasSubstr("tile_m=96"));
}

TEST(Json, WhatIsNoReportIsRefused) {
  const auto told = [](const std::string& text) -> std::string {
    try {
      parse_report(text, "'x.json'");
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "nothing";
  };
  const auto with = [](const std::string& fields) {
    return R"({"schema":"meshloom-bench/1","rows":[{)" + fields + "}]}";
  };
  EXPECT_THAT(told(""), HasSubstr("'x.json': must be JSON"));
  EXPECT_THAT(told("[]"), HasSubstr("field schema"));
  EXPECT_THAT(told(R"({"schema":"other/2","rows":[]})"), HasSubstr("schema"));
  EXPECT_THAT(told(R"({"schema":"meshloom-bench/1"})"), HasSubstr("rows"));
  EXPECT_THAT(told(with(R"("op":"matmul","seconds":1)")), HasSubstr("call or shape"));
  EXPECT_THAT(told(with(R"("op":"matmul","shape":"a")")), HasSubstr("seconds"));
  EXPECT_THAT(told(with(R"("op":"matmul","shape":"a","seconds":-1)")), HasSubstr("of at least 0"));
  EXPECT_THAT(told(with(R"("op":"matmul","shape":"a","seconds":"1")")), HasSubstr("rows[0].seconds"));
  EXPECT_THAT(told(with(R"("op":"matmul","shape":"a","seconds":1,"samples":1.5)")),
              HasSubstr("whole number"));
  EXPECT_THAT(told(std::string(100000, '[')), HasSubstr("nesting"));
  EXPECT_EQ(told(with(R"("op":"matmul","shape":"a","seconds":1,"later":{"x":[]})")), "nothing");
}

// Damaged files are read or refused, never more.
TEST(Json, FuzzedFilesAreReadOrRefused) {
  Report report = report_of({row("a", 1e-3), row("b", 2e-3)});
  report.rows[0].params = {{"tile_m", 96}};
  const std::string good = to_json(report);
  int read = 0;
  const int rounds = tests::damage_rounds();
  for (int round = 0; round < rounds; ++round) {
    kernels::Rng rng(static_cast<std::uint64_t>(round));
    const std::string text = tests::damaged(good, rng);
    try {
      Report now = report_of({row("a", 1e-3)});
      const Report then = parse_report(text, "fuzz");
      compare(now, then, "fuzz");
      gate(now, then, 0.05);
      ++read;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read, rounds / 50) << "some damage is harmless";
  EXPECT_LT(read, rounds);
}

TEST(Gate, FindsAPlantedSlowdown) {
  const Report before =
      report_of({row("a", 1e-3), row("b", 1e-3), row("c", 1e-3), row("d", 1e-3), row("gone", 1)});
  Report now =
      report_of({row("a", 1.2e-3), row("b", 1.04e-3), row("c", 0.8e-3), row("d", 1.2e-3, true), row("e", 1)});
  now.rows[3].fastest = 1e-3;
  compare(now, before, "before.json");
  EXPECT_EQ(gate(now, before, 0.05), 1);
  std::vector<std::string> verdicts;
  for (const Row& r : now.rows) verdicts.push_back(r.verdict);
  EXPECT_THAT(verdicts, ElementsAre("regression", "ok", "faster", "noisy", "new"));
  EXPECT_DOUBLE_EQ(now.rows[0].ratio, 1 / 1.2);
  EXPECT_THAT(now.notes, Contains(HasSubstr("1 regression, 1 noisy, 1 faster, 1 ok, 1 new")));
  EXPECT_THAT(now.notes, Contains(HasSubstr("1 of the baseline's 5 rows were not measured")));
  Report same = report_of({row("a", 1e-3)});
  EXPECT_EQ(gate(same, before, 0), 0) << "the negative control";
}

TEST(Gate, ANoisyBaselineDoesNotJudge) {
  const Report before = report_of({row("a", 1e-3, true)});
  Report now = report_of({row("a", 2e-3)});
  EXPECT_EQ(gate(now, before, 0.05), 0);
  EXPECT_EQ(now.rows[0].verdict, "noisy");
}

TEST(Gate, NoiseDoesNotHideALargeLoss) {
  Report before = report_of({row("a", 1e-3)});
  before.rows[0].spread = 0.5;
  Report now = report_of({row("a", 4e-3, true)});
  now.rows[0].fastest = 2e-3;
  EXPECT_EQ(gate(now, before, 0.05), 1);
  now.rows[0].fastest = 1.5e-3;
  EXPECT_EQ(gate(now, before, 0.05), 0) << "the baseline's own samples lay so far apart";
  EXPECT_EQ(now.rows[0].verdict, "noisy");
}

TEST(Gate, WrongResultsAreNoYardstick) {
  Report before = report_of({row("a", 1e-6)});
  before.rows[0].check = "wrong";
  Report now = report_of({row("a", 1e-3)});
  EXPECT_EQ(gate(now, before, 0.05), 0);
  EXPECT_EQ(now.rows[0].verdict, "new");
}

TEST(Gate, AnotherMachineIsSaid) {
  Header now, then;
  now.set("processor", "a");
  now.set("threads", "2");
  now.set("date", "today");
  then.set("processor", "b");
  then.set("date", "yesterday");
  EXPECT_EQ(environment_differences(now, then, "x.json"),
            "x.json was measured in another environment: processor b, now a");
  then.set("processor", "a");
  EXPECT_EQ(environment_differences(now, then, "x.json"), "");
}

TEST(Gate, AnotherKernelIsJudgedWhereBothAreSelected) {
  const Report before = report_of({row("a", 1e-3)});
  Report now = report_of({row("a", 2e-3)});
  now.rows[0].variant = "newer";
  EXPECT_EQ(gate(now, before, 0.05), 1);
  now.rows[0].selected = false;
  EXPECT_EQ(gate(now, before, 0.05), 0);
  EXPECT_EQ(now.rows[0].verdict, "new");
}

TEST(Gate, OtherDevicesAreComparedAndNotJudged) {
  Report before = report_of({row("a", 1e-3)});
  before.rows[0].device = "torch cpu";
  before.rows[0].variant = "torch";
  Report now = report_of({row("a", 2e-3)});
  compare(now, before, "torch.json");
  EXPECT_EQ(now.rows[0].baseline, "torch on torch cpu");
  EXPECT_DOUBLE_EQ(now.rows[0].ratio, 0.5);
  EXPECT_EQ(gate(now, before, 0.05), 0);
  Report cold = report_of({row("a", 2e-3)});
  cold.rows[0].buffers = "cold";
  compare(cold, before, "torch.json");
  EXPECT_THAT(cold.rows[0].baseline_problem, HasSubstr("no row of torch.json"));
}

TEST(Html, NeedsNoNetworkAndEscapes) {
  Report report = report_of({row("</script><img src=http://x>", 1e-3)});
  const std::string page = to_html(report);
  EXPECT_THAT(page, Not(HasSubstr("</script><img")));
  EXPECT_THAT(page, Not(HasSubstr("/*REPORT*/")));
  // The row's own text is data; nothing else may look like an address or load something.
  const std::string rest = std::regex_replace(page, std::regex("src=http://x"), "");
  EXPECT_THAT(rest, Not(HasSubstr("://")));
  EXPECT_THAT(rest, Not(HasSubstr("src=")));
  EXPECT_THAT(rest, Not(HasSubstr("href=")));
  EXPECT_THAT(rest, Not(HasSubstr("@import")));
  EXPECT_THAT(rest, Not(HasSubstr("url(")));
  EXPECT_THAT(rest, Not(HasSubstr("fetch(")));
  EXPECT_EQ(safe_in_script("a<!--</b"), "a\\u003c!--\\u003c/b");
}

TEST(Text, NamesWhatIsWrong) {
  Report report = report_of({row("a", 1e-3), row("b", 1e-3)});
  report.rows[1].check = "wrong";
  report.rows[1].problem = "3 of 9 elements are wrong";
  const std::string text = to_text(report);
  EXPECT_THAT(text, HasSubstr("WRONG"));
  EXPECT_THAT(text, HasSubstr("3 of 9 elements are wrong"));
  EXPECT_THAT(text, HasSubstr("1.00 ms"));
}

}  // namespace
}  // namespace meshloom::bench
