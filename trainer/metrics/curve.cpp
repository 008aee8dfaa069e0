#include "trainer/metrics/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

constexpr double kWidth = 860, kHeight = 480, kLeft = 70, kRight = 20, kTop = 50, kBottom = 60;
constexpr const char* kTrainColour = "#4477aa";
constexpr const char* kEvalColour = "#ee6677";

// The smallest step of the series 1, 2, 5, 10, ... that cuts `span` into at most `max_parts`.
double round_step(double span, int max_parts) {
  const double raw = span / max_parts;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

struct Axis {
  double low, high, step, from, to;  // data range, tick distance, pixel range
  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

Axis make_axis(double low, double high, int ticks, double from, double to) {
  if (!(high > low)) high = low + 1;
  const double step = round_step(high - low, ticks);
  return {std::floor(low / step) * step, std::ceil(high / step) * step, step, from, to};
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string text_at(double x, double y, const std::string& text, const std::string& more) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(text));
}

std::string ticks(const Axis& axis, bool horizontal) {
  std::string svg;
  const int count = static_cast<int>(std::llround((axis.high - axis.low) / axis.step));
  for (int i = 0; i <= count; ++i) {
    const double value = axis.low + i * axis.step, at = axis.at(value);
    const std::string label = fmt::format("{:.6g}", value);
    if (horizontal) {
      svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#eee\"/>\n", at,
                         kTop, kHeight - kBottom);
      svg += text_at(at, kHeight - kBottom + 18, label, "text-anchor=\"middle\"");
    } else {
      svg += fmt::format("<line y1=\"{0:.1f}\" y2=\"{0:.1f}\" x1=\"{1}\" x2=\"{2}\" stroke=\"#eee\"/>\n", at,
                         kLeft, kWidth - kRight);
      svg += text_at(kLeft - 8, at + 4, label, "text-anchor=\"end\"");
    }
  }
  return svg;
}

}  // namespace

std::vector<CurvePoint> read_curve(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  if (!file) throw hal::Error(path, "the metrics file must be readable");
  std::vector<CurvePoint> points;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const std::string where = path + ":" + std::to_string(number);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
      throw hal::Error(where, "every line must be an object with a step", line.substr(0, 80));
    const auto number_of = [&](const std::string& key) -> std::optional<double> {
      if (const auto found = json.find(key); found != json.end() && found->is_number())
        return found->get<double>();
      return std::nullopt;
    };
    points.push_back({json["step"].get<std::int64_t>(), number_of(name).value_or(std::nan("")),
                      number_of("eval_" + name)});
  }
  return points;
}

std::string curve_svg(const std::vector<CurvePoint>& points, const std::string& title,
                      const std::string& label) {
  double lowest = INFINITY, highest = -INFINITY, last = 1;
  const auto stretch = [&](double value) {
    if (!std::isfinite(value)) return;
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  };
  for (const CurvePoint& point : points) {
    stretch(point.value);
    if (point.evaluated) stretch(*point.evaluated);
    last = std::max(last, static_cast<double>(point.step));
  }
  if (!(lowest <= highest)) lowest = 0, highest = 1;
  const Axis x = make_axis(0, last, 10, kLeft, kWidth - kRight);
  const Axis y = make_axis(lowest, highest, 8, kHeight - kBottom, kTop);

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += ticks(x, true) + ticks(y, false);
  svg += text_at(kWidth / 2, 24, title, "text-anchor=\"middle\" font-size=\"16\"");
  svg += text_at(kWidth / 2, kHeight - 18, "step", "text-anchor=\"middle\"");
  svg += text_at(18, kHeight / 2, label,
                 fmt::format("text-anchor=\"middle\" transform=\"rotate(-90 18 {})\"", kHeight / 2));
  std::string line, dots;
  for (const CurvePoint& point : points) {
    const double at = x.at(static_cast<double>(point.step));
    if (std::isfinite(point.value)) line += fmt::format("{:.1f},{:.1f} ", at, y.at(point.value));
    if (point.evaluated && std::isfinite(*point.evaluated))
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n", at,
                          y.at(*point.evaluated), kEvalColour);
  }
  svg += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n",
                     kTrainColour, line);
  svg += dots;
  svg += text_at(kWidth - kRight - 150, kTop + 18, "training", fmt::format("fill=\"{}\"", kTrainColour));
  svg += text_at(kWidth - kRight - 80, kTop + 18, "evaluation", fmt::format("fill=\"{}\"", kEvalColour));
  return svg + "</svg>\n";
}

}  // namespace meshloom::trainer
