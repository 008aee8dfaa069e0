#include "backends/opencl/device/ptx.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace meshloom::backends::opencl {
namespace {

constexpr std::string_view kMark = "//sm_90a ", kTarget = ".target ", kVersion = ".version ";
// The first version of PTX that has those instructions is 8.0.
constexpr int kMinMajor = 8;

bool starts_at(std::string_view text, std::size_t at, std::string_view word) {
  return text.substr(at, word.size()) == word;
}

// The words of a directive's line end at a comma, a space or the line's end.
std::size_t word_end(std::string_view text, std::size_t begin) {
  return std::min(text.find_first_of(", \t\r\n", begin), text.size());
}

}  // namespace

std::optional<std::string> ptx_for_sm_90a(std::string_view ptx) {
  if (ptx.find(kMark) == std::string_view::npos) return std::nullopt;
  std::string out;
  out.reserve(ptx.size());
  bool line_begins = true;
  for (std::size_t at = 0; at < ptx.size();) {
    if (starts_at(ptx, at, kMark)) {
      at += kMark.size();
    } else if (line_begins && starts_at(ptx, at, kTarget)) {
      out += std::string(kTarget) + "sm_90a";
      at = word_end(ptx, at + kTarget.size());
    } else if (line_begins && starts_at(ptx, at, kVersion)) {
      const std::size_t end = word_end(ptx, at + kVersion.size());
      const std::string own(ptx.substr(at + kVersion.size(), end - at - kVersion.size()));
      out += std::string(kVersion) +
             (std::atoi(own.c_str()) < kMinMajor ? std::to_string(kMinMajor) + ".0" : own);
      at = end;
    }
    if (at == ptx.size()) break;
    line_begins = ptx[at] == '\n';
    out += ptx[at++];
  }
  return out;
}

int min_workgroups(const hal::ExecutableSpec& spec) {
  for (const hal::Define& define : spec.defines)
    if (define.name == "MIN_WORKGROUPS") return std::atoi(define.value.c_str());
  return 0;
}

std::optional<std::string> ptx_with_min_workgroups(std::string_view ptx, int workgroups) {
  const std::string directive = ".minnctapersm " + std::to_string(workgroups) + "\n";
  std::string out;
  bool found = false;
  for (std::size_t at = 0; at < ptx.size();) {
    const std::size_t end = std::min(ptx.find('\n', at), ptx.size() - 1) + 1;
    const std::string_view line = ptx.substr(at, end - at);
    out += line;
    if (line.starts_with(".reqntid ") || line.starts_with(".maxntid ")) {
      if (!line.ends_with('\n')) out += '\n';
      out += directive;
      found = true;
    }
    at = end;
  }
  if (!found) return std::nullopt;
  return out;
}

}  // namespace meshloom::backends::opencl
