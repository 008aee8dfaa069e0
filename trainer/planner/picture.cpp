#include "trainer/planner/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

namespace meshloom::trainer {
namespace {

using TraceJson = nlohmann::ordered_json;

constexpr double kPictureWidth = 1600, kRow = 22, kNarrow = 0.25;  // pixels

// The rows of a picture: {stage, resource}, the device of a stage first.
std::vector<std::pair<int, std::string>> rows_of(const StepTime& time) {
  std::vector<std::pair<int, std::string>> rows;
  for (const Span& span : time.spans) {
    const std::pair<int, std::string> row(span.stage, span.resource);
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    const auto order = [](const auto& row) {
      return std::tuple(row.first, row.second != "device", row.second);
    };
    return order(a) < order(b);
  });
  return rows;
}

std::string safe_text(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

const char* color_of(const std::string& kind) {
  if (kind == "compute") return "#4c9a6a";
  if (kind == "memory") return "#a3c585";
  if (kind == "moves") return "#5b7db8";
  return "#d9d3c7";
}

}  // namespace

std::string step_trace(const StepTime& time, const std::string& title) {
  TraceJson events = TraceJson::array();
  std::map<int, int> threads;  // by stage
  std::map<std::pair<int, std::string>, int> thread_of;
  for (const auto& row : rows_of(time)) {
    const int thread = threads[row.first]++;
    thread_of[row] = thread;
    if (thread == 0)
      events.push_back({{"name", "process_name"},
                        {"ph", "M"},
                        {"pid", row.first},
                        {"args", {{"name", fmt::format("{}, stage {}", title, row.first)}}}});
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", row.first},
                      {"tid", thread},
                      {"args", {{"name", row.second}}}});
  }
  for (const Span& span : time.spans)
    events.push_back({{"name", span.name},
                      {"cat", span.kind},
                      {"ph", "X"},
                      {"pid", span.stage},
                      {"tid", thread_of.at({span.stage, span.resource})},
                      {"ts", span.start * 1e6},
                      {"dur", span.seconds * 1e6}});
  TraceJson json;
  json["traceEvents"] = std::move(events);
  json["displayTimeUnit"] = "ms";
  json["otherData"] = {{"note", "predicted, of one step"}};
  return json.dump(1) + "\n";
}

std::string step_html(const StepTime& time, const std::string& title, const std::string& about) {
  const std::vector<std::pair<int, std::string>> rows = rows_of(time);
  const double scale = time.seconds > 0 ? kPictureWidth / time.seconds : 0;
  std::string shapes;
  std::map<std::pair<int, std::string>, double> drawn;  // how far a row is drawn, in pixels
  for (const Span& span : time.spans) {
    const std::pair<int, std::string> row(span.stage, span.resource);
    const double x = span.start * scale, end = x + span.seconds * scale;
    double& far = drawn.try_emplace(row, -1).first->second;
    if (end - far < kNarrow) continue;  // nobody would see it
    far = end;
    const auto y = static_cast<double>(std::find(rows.begin(), rows.end(), row) - rows.begin()) * kRow;
    shapes += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{}: {:.4g} ms at "
        "{:.4g} "
        "ms</title></rect>\n",
        x, y, std::max(kNarrow, end - x), kRow - 4, color_of(span.kind), safe_text(span.name),
        span.seconds * 1e3, span.start * 1e3);
  }
  std::string labels;
  for (std::size_t i = 0; i < rows.size(); ++i)
    labels += fmt::format("<text x=\"-8\" y=\"{}\" text-anchor=\"end\">stage {}, {}</text>\n",
                          static_cast<double>(i) * kRow + 14, rows[i].first, safe_text(rows[i].second));
  const double height = static_cast<double>(rows.size()) * kRow;
  return fmt::format(
      "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:2em}}text{{font-size:12px}}pre{{font-size:13px}}</style></"
      "head>\n"
      "<body><h1>{0}</h1>\n<pre>{1}</pre>\n"
      "<p>One step of {2:.4g} s, to scale. Dark green: calls that computing bounds; light green: calls that "
      "the memory "
      "bounds; blue: moves; grey: waits.</p>\n"
      "<svg viewBox=\"-220 0 {3} {4}\" width=\"100%\">\n{5}{6}</svg></body></html>\n",
      safe_text(title), safe_text(about), time.seconds, kPictureWidth + 240, height + 10, labels, shapes);
}

}  // namespace meshloom::trainer
