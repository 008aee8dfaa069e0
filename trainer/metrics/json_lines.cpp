#include "trainer/metrics/json_lines.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/input/file.h"

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
  text += fmt::format(
      ", \"learning_rate\": {}, \"gradient_norm\": {}, \"tokens\": {}, \"tokens_per_s\": {}, \"mfu\": {}, "
      "\"peak_bytes\": {}, \"seconds\": {}",
      number(r.learning_rate), number(r.gradient_norm), r.tokens, brief(r.tokens_per_s), brief(r.mfu), r.peak_bytes,
      brief(r.seconds));
  if (r.fill) text += fmt::format(", \"fill\": {}", brief(*r.fill));
  if (r.loss_scale) text += fmt::format(", \"loss_scale\": {}", brief(*r.loss_scale));
  if (r.skipped) text += ", \"skipped\": true";
  for (std::size_t i = 0; i < r.summaries.size(); ++i)
    text += fmt::format("{}\"{}\": {}", i == 0 ? ", \"summaries\": {" : ", ", r.summaries[i].first,
                        brief(r.summaries[i].second));
  if (!r.summaries.empty()) text += "}";
  return text + "}";
}

JsonLines::JsonLines(std::string path, std::int64_t resumed) : path_(std::move(path)) {
  const std::string where = "'" + path_ + "'";
  std::string kept;
  if (resumed > 0 && std::filesystem::exists(path_)) kept = kept_lines(read_file(path_, where), resumed);
  const std::string temporary = path_ + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  const bool written = file && std::fwrite(kept.data(), 1, kept.size(), file) == kept.size();
  const bool closed = file && std::fclose(file) == 0;
  if (!written || !closed || std::rename(temporary.c_str(), path_.c_str()) != 0)
    throw Error(where, "the metrics must be writable", std::strerror(errno));
  file_ = std::fopen(path_.c_str(), "ab");
  if (!file_) throw Error(where, "the metrics must be writable", std::strerror(errno));
}

JsonLines::~JsonLines() {
  if (file_) std::fclose(file_);
}

void JsonLines::add(const StepRecord& record) {
  const std::string line = to_json(record) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
    throw Error("'" + path_ + "'", "the metrics must be writable", std::strerror(errno));
}

}  // namespace meshloom::trainer
