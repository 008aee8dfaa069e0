#include "bench/core/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/core/report_fields.h"
#include "bench/core/table.h"

namespace meshloom::bench {
namespace {

std::string percent(double fraction) {
  if (fraction <= 0) return "-";
  return fmt::format("{:.{}f}%", 100 * fraction, fraction < 0.0995 ? 1 : 0);
}

std::string csv(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}
template <typename T>
std::string csv(const T& number) {
  return fmt::format("{}", number);
}
// "tile_m=64 tile_n=32"
std::string csv(const std::map<std::string, std::int64_t>& params) {
  std::string text;
  for (const auto& [name, value] : params)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

}  // namespace

void Header::set(const std::string& name, std::string text) {
  for (auto& [known, value] : fields)
    if (known == name) {
      value = std::move(text);
      return;
    }
  fields.emplace_back(name, std::move(text));
}

std::string Header::get(std::string_view name) const {
  for (const auto& [known, value] : fields)
    if (known == name) return value;
  return "";
}

void compute_rates(Row& row, const Ceilings& ceilings) {
  if (row.seconds <= 0) return;
  row.tflops = row.flops / row.seconds * 1e-12;
  row.gbs = row.bytes / row.seconds * 1e-9;
  // Wrong results do not raise the ceiling.
  if (const double peak = ceilings.flops_of(row.op, row.dtype); peak > 0)
    row.peak_fraction = std::min(1.0, row.flops / row.seconds / peak);
  if (ceilings.bytes_per_second > 0)
    row.bandwidth_fraction = row.bytes / row.seconds / ceilings.bytes_per_second;
  row.roof_fraction = std::max(row.peak_fraction, row.bandwidth_fraction);
  // Launching takes a large part of the call's time, so faster arithmetic would not help.
  const bool launch = row.seconds < 3 * ceilings.launch_seconds(row.calls_per_sample);
  row.bound = launch ? "launch" : row.peak_fraction >= row.bandwidth_fraction ? "compute" : "memory";
}

void compute_step_shares(std::vector<Row>& rows) {
  double sum = 0;
  for (const Row& row : rows)
    if (row.selected) sum += row.seconds * static_cast<double>(row.per_step);
  if (sum <= 0) return;
  for (Row& row : rows) row.step_share = row.seconds * static_cast<double>(row.per_step) / sum;
}

std::string seconds_text(double seconds) {
  if (seconds <= 0) return "-";
  const char* unit = "s";
  if (seconds < 1e-6)
    seconds *= 1e9, unit = "ns";
  else if (seconds < 1e-3)
    seconds *= 1e6, unit = "us";
  else if (seconds < 1)
    seconds *= 1e3, unit = "ms";
  return fmt::format("{:.{}f} {}", seconds, seconds < 10 ? 2 : seconds < 100 ? 1 : 0, unit);
}

std::string to_text(const Report& report) {
  std::string text = header_text(report.header, report.ceilings);
  bool recipe = false, compared = false, judged = false;
  for (const Row& row : report.rows) {
    recipe = recipe || row.per_step > 0;
    compared = compared || !row.baseline.empty() || !row.baseline_problem.empty();
    judged = judged || !row.verdict.empty();
  }
  std::vector<std::string> head{"op", "shape", "variant"};
  std::vector<bool> left{true, true, true};
  const auto column = [&](const char* name, bool to_left = false) {
    head.push_back(name);
    left.push_back(to_left);
  };
  if (recipe) column("calls"), column("share");
  for (const char* name : {"time", "+-", "GFLOP/s", "GB/s", "peak", "bandwidth"}) column(name);
  column("bound", true), column("check", true);
  if (compared) column("against", true), column("its time"), column("faster by"), column("+-");
  if (judged) column("verdict", true);
  std::vector<std::vector<std::string>> rows{head};
  for (const Row& row : report.rows) {
    const std::string& shape = row.shape.size() <= 44 || row.label.empty() ? row.shape : row.label;
    std::vector<std::string> line{row.op, shortened(shape, 44), row.variant + (row.selected ? " *" : "")};
    if (recipe) {
      line.push_back(row.per_step > 0 ? std::to_string(row.per_step) : "");
      line.push_back(row.step_share > 0 ? fmt::format("{:.1f}%", 100 * row.step_share) : "");
    }
    if (row.seconds > 0) {
      line.push_back(seconds_text(row.seconds));
      line.push_back(fmt::format("{:.0f}%{}", 100 * row.spread, row.noisy ? "!" : ""));
      line.push_back(row.flops > 0 ? fmt::format("{:.{}f}", row.tflops * 1e3, row.tflops < 0.01 ? 2 : 0)
                                   : "-");
      line.push_back(fmt::format("{:.{}f}", row.gbs, row.gbs < 10 ? 2 : 1));
      line.push_back(percent(row.peak_fraction));
      line.push_back(percent(row.bandwidth_fraction));
      line.push_back(row.bound);
    } else {
      line.insert(line.end(), 7, "-");
    }
    line.push_back(row.check == "ok"       ? fmt::format("ok {:.2g}", row.error)
                   : row.check == "wrong"  ? "WRONG"
                   : row.check == "failed" ? "FAILED"
                                           : row.check);
    if (compared) {
      line.push_back(row.baseline);
      line.push_back(seconds_text(row.baseline_seconds) + (row.baseline_noisy ? "!" : ""));
      line.push_back(row.ratio > 0 ? fmt::format("{:.2f}x", row.ratio) : "-");
      line.push_back(row.ratio_spread > 0 ? fmt::format("{:.0f}%", 100 * row.ratio_spread) : "");
    }
    if (judged) line.push_back(row.verdict);
    rows.push_back(std::move(line));
  }
  text += table(rows, left);
  if (recipe) {
    double sum = 0;
    for (const Row& row : report.rows)
      if (row.selected) sum += row.seconds * static_cast<double>(row.per_step);
    text += fmt::format("\nThe selected kernels of one step take {} together.\n", seconds_text(sum));
  }
  text +=
      "\n* = chosen by composing; ! = noisy; +- = interquartile range; check: error as a fraction of the "
      "tolerance\n";
  for (const Row& row : report.rows) {
    const std::string which = fmt::format("{} {} {}", row.op, shortened(row.shape, 60), row.variant);
    if (!row.problem.empty()) text += fmt::format("{}: {}: {}\n", row.check, which, row.problem);
    if (!row.baseline_problem.empty())
      text += fmt::format("not compared: {}: {}\n", which, row.baseline_problem);
  }
  for (const std::string& note : report.notes) text += note + "\n";
  if (report.stopped) text += "stopped: some rows were not measured\n";
  return text;
}

std::string to_csv(const Report& report) {
  std::string text;
  const Row names;
  fields(names,
         [&](const char* name, const auto&) { text += (text.empty() ? "" : ",") + std::string(name); });
  text += "\n";
  for (const Row& row : report.rows) {
    std::string line;
    fields(row, [&](const char* name, const auto& value) {
      if (std::string_view(name) != "op") line += ",";
      line += csv(value);
    });
    text += line + "\n";
  }
  return text;
}

}  // namespace meshloom::bench
