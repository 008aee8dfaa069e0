#include "trainer/metrics/json_lines.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"

namespace meshloom::trainer {
namespace {

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.17g}", value) : "null"; }
std::string brief(double value) { return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null"; }

// The lines of steps 1..last, in order.
std::string kept_lines(const std::string& text, std::int64_t last) {
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // cut off in the middle of a line
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    if (json["step"].get<std::int64_t>() <= last) kept += line + "\n";
  }
  return kept;
}

}  // namespace

std::string to_json(const StepRecord& r) {
  std::string text = fmt::format("{{\"step\": {}, \"loss\": {}", r.step, number(r.loss));
  if (r.eval_loss) text += fmt::format(", \"eval_loss\": {}", number(*r.eval_loss));
  if (r.reward) text += fmt::format(", \"reward\": {}", number(*r.reward));
  if (r.eval_reward) text += fmt::format(", \"eval_reward\": {}", number(*r.eval_reward));
  text += fmt::format(
      ", \"learning_rate\": {}, \"gradient_norm\": {}, \"tokens\": {}, \"tokens_per_s\": {}, \"mfu\": {}, "
      "\"peak_bytes\": {}, \"seconds\": {}",
      number(r.learning_rate), number(r.gradient_norm), r.tokens, brief(r.tokens_per_s), brief(r.mfu),
      r.peak_bytes, brief(r.seconds));
  if (r.packing_efficiency) text += fmt::format(", \"packing_efficiency\": {}", brief(*r.packing_efficiency));
  if (r.loss_scale) text += fmt::format(", \"loss_scale\": {}", brief(*r.loss_scale));
  if (r.device_losses > 0) text += fmt::format(", \"device_losses\": {}", r.device_losses);
  if (r.skipped) text += ", \"skipped\": true";
  for (std::size_t i = 0; i < r.summaries.size(); ++i)
    text += fmt::format("{}\"{}\": {}", i == 0 ? ", \"summaries\": {" : ", ", r.summaries[i].first,
                        brief(r.summaries[i].second));
  if (!r.summaries.empty()) text += "}";
  return text + "}";
}

JsonLines::JsonLines(const std::string& path, std::int64_t resumed) {
  std::string kept;
  if (resumed > 0 && std::filesystem::exists(path))
    kept = kept_lines(read_file(path, "'" + path + "'", INT64_MAX), resumed);
  write_file(path, kept);
  file_ = std::make_unique<AppendFile>(path);
}

}  // namespace meshloom::trainer
