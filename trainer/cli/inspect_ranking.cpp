#include "trainer/cli/inspect_ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

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

template <typename T>
std::string value_or_dash(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "-";
}

}  // namespace

std::string ranking_text(const std::string& call, const std::vector<RankedCandidate>& ranked) {
  std::string text = call + "\n" +
                     fmt::format("  {:>4}  {:>9}  {:>9}  {:>7}  {:>5}  {:>10}  {}\n", "rank", "multiply %",
                                 "registers", "spilled", "waves", "workgroups", "candidate");
  int rank = 0;
  for (const RankedCandidate& one : ranked) {
    const std::string name = one.candidate.name + (one.candidate.is_own ? " (as chosen by the variant)" : "");
    if (!one.error.empty()) {
      text += fmt::format("  {:>4}  {}: {}\n", "-", name, one.error);
      continue;
    }
    const Extremes all = extremes_of(one.inspected);
    text += fmt::format("  {:>4}  {:>10.0f}  {:>9}  {:>7}  {:>5}  {:>10.0f}  {}\n", ++rank, 100 * one.share,
                        value_or_dash(all.registers), value_or_dash(all.spilled), value_or_dash(all.waves),
                        all.groups, name);
  }
  return text;
}

std::string ranking_markdown(const std::string& call, const std::vector<RankedCandidate>& ranked) {
  std::string text = "**" + call +
                     "**\n\n| rank | candidate | multiply % | registers | spilled | waves | workgroups |\n"
                     "|---|---|---|---|---|---|---|\n";
  int rank = 0;
  for (const RankedCandidate& one : ranked) {
    const std::string name = one.candidate.name + (one.candidate.is_own ? " (own choice)" : "");
    if (!one.error.empty()) {
      text += fmt::format("| - | {} | {} | - | - | - | - |\n", name, one.error);
      continue;
    }
    const Extremes all = extremes_of(one.inspected);
    text += fmt::format("| {} | {} | {:.0f} | {} | {} | {} | {:.0f} |\n", ++rank, name, 100 * one.share,
                        value_or_dash(all.registers), value_or_dash(all.spilled), value_or_dash(all.waves),
                        all.groups);
  }
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
