#include "bench/plans/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/measure/statistics.h"

namespace meshloom::bench {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kGib = 1024.0 * 1024 * 1024;

std::string percent(std::optional<double> value) {
  return value ? fmt::format("{:.1f} %", 100 * *value) : "-";
}

std::string line(const std::string& name, std::size_t rows, const Errors& planner, const Errors& constant) {
  std::string text = fmt::format("{:<40.40} {:>4}", name, rows);
  for (const auto& [a, b] : {std::pair{std::optional(planner.all), std::optional(constant.all)},
                             {std::optional(planner.folds), std::optional(constant.folds)},
                             {planner.unseen, constant.unseen},
                             {planner.unseen_two, constant.unseen_two}})
    text += fmt::format("  {:>7} {:>7}", percent(a), percent(b));
  return text + "\n";
}

Json optional(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }
Json errors_json(const Errors& errors) {
  return {{"all", errors.all},
          {"five_fold", errors.folds},
          {"unseen", optional(errors.unseen)},
          {"unseen_after_two", optional(errors.unseen_two)}};
}

std::string dump(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string to_text(const PlansReport& report) {
  const Validation& all = report.validation;
  std::string text =
      fmt::format("{}: {} runs of {} sources", report.table, report.runs.size(), all.sources.size());
  if (!report.skipped.empty())
    text += fmt::format(", and {} that could not be composed", report.skipped.size());
  text += "\n";
  for (const SkippedRun& skipped : report.skipped)
    text += fmt::format("  line {} {}: {}\n", skipped.run.line, skipped.run.model, skipped.reason);
  std::map<std::string, int> simplified;
  for (const PlannedRun& run : report.runs)
    for (const std::string& what : run.features.simplified) ++simplified[what];
  for (const auto& [what, count] : simplified) text += fmt::format("  {} runs: {}\n", count, what);
  text += fmt::format("\n{:<40} {:>4}  {:<15}  {:<15}  {:<15}  {:<15}\n",
                      "median error of a step's time, beside", "", "all", "5-fold", "unseen", "unseen + 2");
  text += fmt::format("{:<40} {:>4}", "that of one constant per family of chips", "rows");
  for (int i = 0; i < 4; ++i) text += fmt::format("  {:>7} {:>7}", "plan", "const");
  text += "\n";
  for (const SourceErrors& source : all.sources)
    text += line(source.source, source.rows, source.planner, source.constant);
  text += line("all rows; unseen: median over sources", report.runs.size(), all.planner, all.constant);
  text += "\nfitted to all rows\n";
  for (std::size_t i = 0; i < constants().size(); ++i)
    text += fmt::format("  {:<18} {:<10.3g} before any row {:.3g}\n", constants()[i].name,
                        std::exp(all.fit.logs[i]), constants()[i].prior);
  for (const auto& [source, factor] : all.fit.sources)
    text += fmt::format("  {:<40.40} x {:.2f}\n", source, std::exp(factor));
  std::vector<double> ratios;
  std::string memory;
  for (const PlannedRun& run : report.runs) {
    if (run.run.peak_gib <= 0) continue;
    const double planned = run.features.peak_bytes / kGib;
    ratios.push_back(planned / run.run.peak_gib);
    memory += fmt::format("  line {:<4} {:<20.20} {:>8.1f} {:>9.1f} {:>6.2f}\n", run.run.line, run.run.model,
                          planned, run.run.peak_gib, ratios.back());
  }
  if (!ratios.empty())
    text += fmt::format("\nGiB of a chip, of {} rows          planned published  ratio (median {:.2f})\n",
                        ratios.size(), median(ratios)) +
            memory;
  return text;
}

std::string to_json(const PlansReport& report) {
  const Validation& all = report.validation;
  Json json;
  json["schema"] = "meshloom-plans/1";
  json["table"] = report.table;
  json["errors"] = {{"planner", errors_json(all.planner)}, {"constant", errors_json(all.constant)}};
  json["sources"] = Json::array();
  for (const SourceErrors& source : all.sources)
    json["sources"].push_back({{"source", source.source},
                               {"rows", source.rows},
                               {"planner", errors_json(source.planner)},
                               {"constant", errors_json(source.constant)},
                               {"factor", std::exp(all.fit.sources.at(source.source))}});
  for (std::size_t i = 0; i < constants().size(); ++i)
    json["constants"][constants()[i].name] = {{"value", std::exp(all.fit.logs[i])},
                                              {"prior", constants()[i].prior}};
  json["rows"] = Json::array();
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    const auto& [run, features] = report.runs[i];
    json["rows"].push_back({{"line", run.line},
                            {"source", run.source},
                            {"model", run.model},
                            {"seconds", run.seconds},
                            {"predicted", all.predicted[i]},
                            {"predicted_five_fold", all.folds[i]},
                            {"peak_gib", run.peak_gib > 0 ? Json(run.peak_gib) : Json(nullptr)},
                            {"planned_gib", features.peak_bytes / kGib},
                            {"simplified", features.simplified}});
  }
  json["skipped"] = Json::array();
  for (const SkippedRun& skipped : report.skipped)
    json["skipped"].push_back(
        {{"line", skipped.run.line}, {"model", skipped.run.model}, {"reason", skipped.reason}});
  return dump(json);
}

std::string features_json(const std::vector<PlannedRun>& runs) {
  Json all = Json::array();
  for (const auto& [run, features] : runs) {
    Json calls = Json::array(), moves = Json::array();
    for (const auto& [cost, count] : features.calls)
      calls.push_back({{"kind", to_string(cost.kind)},
                       {"groups", cost.groups},
                       {"m", cost.m},
                       {"n", cost.n},
                       {"k", cost.k},
                       {"flops", cost.flops},
                       {"bytes", cost.bytes},
                       {"fp8", cost.fp8},
                       {"update", cost.update},
                       {"count", count}});
    for (const GroupMoves& group : features.moves)
      moves.push_back({{"what", group.what},
                       {"ranks", group.ranks},
                       {"inner", group.inner},
                       {"bytes", group.bytes},
                       {"count", group.count}});
    all.push_back({{"line", run.line},
                   {"source", run.source},
                   {"model", run.model},
                   {"chip", run.chip},
                   {"family", features.chip.family},
                   {"seconds", run.seconds},
                   {"micro_batch", run.micro_batch},
                   {"accumulation", run.accumulation},
                   {"bubble", features.bubble},
                   {"model_flops", features.model_flops},
                   {"peak_bytes", features.peak_bytes},
                   {"simplified", features.simplified},
                   {"calls", calls},
                   {"moves", moves}});
  }
  return dump(all);
}

}  // namespace meshloom::bench
