#include "trainer/serve/tools/tool_reader.h"

#include <algorithm>
#include <utility>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

constexpr int kCallDepth = 64;
constexpr std::string_view kBlanks = " \t\r\n";

std::size_t behind_blanks(std::string_view text, std::size_t from) {
  return std::min(text.find_first_not_of(kBlanks, from), text.size());
}

// How much of `text` is left without the blanks at the end of its first `size` bytes.
std::size_t before_blanks(std::string_view text, std::size_t size) {
  const std::size_t last = size == 0 ? std::string_view::npos : text.find_last_not_of(kBlanks, size - 1);
  return last == std::string_view::npos ? 0 : last + 1;
}

// The longest end of `text` that begins `mark` without being all of it.
std::size_t begun(std::string_view text, std::string_view mark) {
  std::size_t size = std::min(mark.size() - 1, text.size());
  while (!text.ends_with(mark.substr(0, size))) --size;
  return size;
}

}  // namespace

ToolReader::ToolReader(const ToolSyntax& syntax, std::vector<std::string> functions, std::size_t most)
    : syntax_(syntax), functions_(std::move(functions)), most_(most) {}

ToolReader::Part ToolReader::add(std::string_view more) {
  Part part;
  held_ += more;
  syntax_.open.empty() ? read_whole(false, part) : read_marked(false, part);
  return part;
}

ToolReader::Part ToolReader::finish() {
  Part part;
  syntax_.open.empty() ? read_whole(true, part) : read_marked(true, part);
  return part;
}

void ToolReader::read_whole(bool end, Part& part) {
  const std::size_t first = behind_blanks(held_, 0);
  if (!only_text_ && first < held_.size() && held_[first] != '{') only_text_ = true;
  if (!only_text_ && end && first < held_.size()) {
    const std::string json = held_.substr(first, before_blanks(held_, held_.size()) - first);
    if (take(json, part)) return held_.clear();
  }
  if (only_text_ || end) give(held_.size(), part);
}

void ToolReader::read_marked(bool end, Part& part) {
  for (;;) {
    if (body_ == 0) {
      const std::size_t at = held_.find(syntax_.open);
      if (at == std::string::npos) {
        const std::size_t certain = held_.size() - begun(held_, syntax_.open);
        return give(end ? held_.size() : before_blanks(held_, certain), part);
      }
      const std::size_t text = before_blanks(held_, at);
      give(text, part);
      body_ = at - text + syntax_.open.size();
      scan_ = {};
    }
    std::size_t call_end = 0;
    const Found found = call_behind_mark(end, call_end, part);
    if (found == Found::open) return;
    if (found == Found::call) {
      held_.erase(0, call_end);
      behind_call_ = true;
    } else {
      give(body_, part);
    }
    body_ = 0;
  }
}

ToolReader::Found ToolReader::call_behind_mark(bool end, std::size_t& call_end, Part& part) {
  const Found missing = end ? Found::text : Found::open;
  const std::size_t first = behind_blanks(held_, body_);
  if (first == held_.size()) return missing;
  if (held_[first] != (syntax_.list ? '[' : '{')) return Found::text;
  scan_.at = std::max(scan_.at, first);
  scan_.advance(held_);
  if (!scan_.done) return missing;
  call_end = scan_.at;
  if (!syntax_.close.empty()) {
    const std::size_t close = behind_blanks(held_, call_end);
    const std::string_view rest = std::string_view(held_).substr(close);
    if (rest.starts_with(syntax_.close)) {
      call_end = close + syntax_.close.size();
    } else if (syntax_.close.starts_with(rest)) {
      if (!end) return Found::open;
      call_end = held_.size();  // the text was cut off in its mark, behind the call
    } else {
      return Found::text;
    }
  }
  return take(std::string_view(held_).substr(first, scan_.at - first), part) ? Found::call : Found::text;
}

bool ToolReader::take(std::string_view json, Part& part) {
  nlohmann::ordered_json parsed;
  try {
    parsed = parse_ordered_json(json, "tools", "the call", kCallDepth);
  } catch (const Error&) {
    return false;
  }
  if (syntax_.list && (!parsed.is_array() || parsed.empty())) return false;
  if (!syntax_.list) parsed = nlohmann::ordered_json::array({parsed});
  std::vector<ToolCall> calls;
  for (const auto& each : parsed) {
    if (!each.is_object()) return false;
    const auto name = each.find("name"), arguments = each.find(std::string(syntax_.arguments));
    if (name == each.end() || arguments == each.end() || !name->is_string() || !arguments->is_object())
      return false;
    if (std::find(functions_.begin(), functions_.end(), name->get_ref<const std::string&>()) ==
        functions_.end())
      return false;
    calls.push_back({name->get<std::string>(), arguments->dump()});
  }
  for (ToolCall& call : calls)
    if (calls_++ < most_) part.calls.push_back(std::move(call));
  return true;
}

void ToolReader::give(std::size_t bytes, Part& part) {
  const std::size_t from = behind_call_ ? std::min(behind_blanks(held_, 0), bytes) : 0;
  if (from < bytes) behind_call_ = false;
  part.text.append(held_, from, bytes - from);
  held_.erase(0, bytes);
}

void ToolReader::Scan::advance(std::string_view text) {
  while (!done && at < text.size()) {
    const char c = text[at++];
    if (escape) {
      escape = false;
    } else if (string) {
      escape = c == '\\';
      string = c != '"';
    } else if (c == '"') {
      string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      done = --depth == 0;
    }
  }
}

}  // namespace meshloom::trainer
