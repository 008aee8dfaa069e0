#include "bench/core/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace meshloom::bench {
namespace {

bool same_call(const Row& row, const Row& other) {
  if (row.op != other.op) return false;
  if (!other.dtype.empty() && row.dtype != other.dtype) return false;
  if (row.buffers != other.buffers) return false;
  return other.call.empty() || row.call.empty() ? row.shape == other.shape : row.call == other.call;
}

}  // namespace

const Row* find_baseline(const Report& baseline, const Row& row, bool others) {
  const Row* selected = nullptr;
  const Row* other = nullptr;
  for (const Row& candidate : baseline.rows) {
    const bool wrong = candidate.check == "wrong" || candidate.check == "failed";
    if (candidate.seconds <= 0 || wrong || !same_call(row, candidate)) continue;
    if (candidate.device == row.device) {
      if (candidate.variant == row.variant) return &candidate;
      if (candidate.selected && row.selected) selected = &candidate;
    }
    if (!other || candidate.seconds < other->seconds) other = &candidate;
  }
  return selected ? selected : others ? other : nullptr;
}

void compare(Report& report, const Report& baseline, const std::string& name) {
  for (Row& row : report.rows) {
    if (!row.baseline.empty() || row.seconds <= 0) continue;
    const Row* match = find_baseline(baseline, row);
    if (!match) {
      row.baseline_problem = "no row of " + name + " has this call";
      continue;
    }
    row.baseline = match->variant.empty() ? name : match->variant;
    if (match->device != row.device && !match->device.empty()) row.baseline += " on " + match->device;
    row.baseline_seconds = match->seconds;
    row.baseline_noisy = match->noisy;
    row.ratio = match->seconds / row.seconds;
  }
}

std::string judge(const Row& row, const Row* baseline, double max_regression) {
  if (!baseline) return "new";
  if (row.seconds <= 0) return "";  // it failed, as its check says
  if (row.seconds > baseline->seconds * (1 + max_regression)) {
    const bool clear =
        !row.noisy || row.fastest > baseline->seconds * (1 + max_regression + baseline->spread);
    return baseline->noisy || !clear ? "noisy" : "regression";
  }
  return row.seconds * (1 + max_regression) < baseline->seconds ? "faster" : "ok";
}

std::string environment_differences(const Header& now, const Header& then, const std::string& name) {
  std::string text;
  for (const char* field : {"processor", "threads", "device", "driver", "runs as", "built"})
    if (const std::string was = then.get(field), is = now.get(field);
        !was.empty() && !is.empty() && was != is)
      text += fmt::format("{}{} {}, now {}", text.empty() ? "" : "; ", field, was, is);
  return text.empty() ? "" : name + " was measured in another environment: " + text;
}

int gate(Report& report, const Report& baseline, double max_regression) {
  std::map<std::string, int> counts;
  std::set<const Row*> used;
  for (Row& row : report.rows) {
    const Row* match = find_baseline(baseline, row, false);
    if (match) used.insert(match);
    row.verdict = judge(row, match, max_regression);
    ++counts[row.verdict];
  }
  std::string text;
  for (const char* verdict : {"regression", "noisy", "faster", "ok", "new"})
    if (const int count = counts[verdict])
      text += fmt::format(
          "{}{} {}", text.empty() ? "" : ", ", count,
          std::string_view(verdict) == "regression" ? count == 1 ? "regression" : "regressions" : verdict);
  report.notes.push_back(
      fmt::format("gate at {:g}%: {}", 100 * max_regression, text.empty() ? "nothing to judge" : text));
  const auto missing = static_cast<std::size_t>(std::count_if(
      baseline.rows.begin(), baseline.rows.end(), [&](const Row& row) { return !used.count(&row); }));
  if (missing > 0)
    report.notes.push_back(
        fmt::format("gate: {} of the baseline's {} rows were not measured", missing, baseline.rows.size()));
  return counts["regression"];
}

}  // namespace meshloom::bench
