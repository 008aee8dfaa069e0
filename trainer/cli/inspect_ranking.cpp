#include "trainer/cli/inspect_ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "trainer/cli/inspect_text.h"

namespace meshloom::trainer {
namespace {

// Of all pipelines the largest number, or the smallest for waves, or "-".
struct Extremes {
  std::optional<std::int64_t> registers, spilled;
  std::optional<double> waves;
  double groups = 0;
};
Extremes extremes_of(const InspectedCall& call) {
  Extremes all;
  const auto most = [](std::optional<std::int64_t>& into, const std::optional<std::int64_t>& value) {
    if (value) into = std::max(into.value_or(*value), *value);
  };
  for (const InspectedPipeline& one : call.pipelines) {
    most(all.registers, one.found.registers);
    most(all.spilled, one.found.spilled);
    if (one.found.waves) all.waves = std::min(all.waves.value_or(*one.found.waves), *one.found.waves);
    all.groups = std::max(all.groups, 1.0 * one.groups[0] * one.groups[1] * one.groups[2]);
  }
  return all;
}

struct Row {
  std::string rank, share, registers, spilled, waves, workgroups;
  std::string name, error;
};
std::vector<Row> rows_of(const std::vector<RankedCandidate>& ranked) {
  std::vector<Row> rows;
  int rank = 0;
  for (const RankedCandidate& one : ranked) {
    Row& row = rows.emplace_back(Row{"-", "-", "-", "-", "-", "-", one.candidate.name, one.error});
    if (one.candidate.is_own) row.name += " (as chosen by the variant)";
    if (!one.error.empty()) continue;
    const Extremes all = extremes_of(one.inspected);
    row.rank = std::to_string(++rank);
    row.share = fmt::format("{:.0f}", 100 * one.share);
    row.registers = or_dash(all.registers);
    row.spilled = or_dash(all.spilled);
    row.waves = or_dash(all.waves);
    row.workgroups = fmt::format("{:.0f}", all.groups);
  }
  return rows;
}

// The candidate, and why it could not be inspected.
std::string about(const Row& row) { return row.error.empty() ? row.name : row.name + ": " + row.error; }

}  // namespace

std::string ranking_text(const std::string& call, const std::vector<RankedCandidate>& ranked) {
  constexpr const char* kLine = "  {:>4}  {:>10}  {:>9}  {:>7}  {:>5}  {:>10}  {}\n";
  std::string text = call + "\n" +
                     fmt::format(fmt::runtime(kLine), "rank", "multiply %", "registers", "spilled", "waves",
                                 "workgroups", "candidate");
  for (const Row& row : rows_of(ranked))
    text += fmt::format(fmt::runtime(kLine), row.rank, row.share, row.registers, row.spilled, row.waves,
                        row.workgroups, about(row));
  return text;
}

std::string ranking_markdown(const std::string& call, const std::vector<RankedCandidate>& ranked) {
  std::string text = "**" + call +
                     "**\n\n| rank | multiply % | registers | spilled | waves | workgroups | candidate |\n"
                     "|---|---|---|---|---|---|---|\n";
  for (const Row& row : rows_of(ranked))
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", row.rank, row.share, row.registers,
                        row.spilled, row.waves, row.workgroups, about(row));
  return text + "\n";
}

nlohmann::ordered_json ranking_json(const std::string& call, const std::vector<RankedCandidate>& ranked) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const RankedCandidate& one : ranked) {
    nlohmann::ordered_json row{{"variant", one.candidate.variant->name},
                               {"params", one.candidate.fit.params},
                               {"own", one.candidate.is_own}};
    if (!one.error.empty()) {
      row["error"] = one.error;
    } else {
      row["multiplying_share"] = one.share;
      row["registers_in_memory"] = one.registers_in_memory;
    }
    rows.push_back(std::move(row));
  }
  return {{"call", call}, {"candidates", std::move(rows)}};
}

}  // namespace meshloom::trainer
