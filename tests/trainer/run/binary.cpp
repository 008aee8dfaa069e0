#include "tests/trainer/run/binary.h"

#include <stdlib.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace meshloom::tests {

std::vector<std::string> Outcome::errors() const {
  std::vector<std::string> lines;
  std::istringstream text(err);
  for (std::string line; std::getline(text, line);)
    if (!line.starts_with("note: ")) lines.push_back(line);
  return lines;
}

Scratch::Scratch() {
  std::string pattern = (std::filesystem::temp_directory_path() / "meshloom-test-XXXXXX").string();
  root_ = mkdtemp(pattern.data());
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

std::string Scratch::file(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Outcome shell(const std::string& command) {
  const Scratch scratch;
  const int status = std::system(
      ("(" + command + ") >" + scratch.path("out") + " 2>" + scratch.path("err") + " </dev/null").c_str());
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_text(scratch.path("out"));
  outcome.err = read_text(scratch.path("err"));
  return outcome;
}

Outcome meshloom(const std::string& arguments, const std::string& before) {
  // For builds with AddressSanitizer: leaks are our own only where no GPU driver is in the process, and freed
  // memory that is held back must not look like a leak to tests that watch the size.
  const bool no_driver = arguments.find("--device cpu") != std::string::npos ||
                         arguments.find("--device null") != std::string::npos;
  const std::string options = std::string("quarantine_size_mb=1:detect_leaks=") + (no_driver ? "1" : "0");
  return shell("export ASAN_OPTIONS=" + options + "${ASAN_OPTIONS:+:$ASAN_OPTIONS}; " + before + " " +
               MESHLOOM_BINARY + " " + arguments);
}

std::vector<std::pair<int, double>> losses(const std::string& run) {
  std::vector<std::pair<int, double>> all;
  std::istringstream text(read_text(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    all.push_back({json["step"].get<int>(), json["loss"].get<double>()});
  }
  return all;
}

std::string sample_text(std::size_t bytes) {
  static const char* const kWords[] = {"the",   "river", "ran",      "over", "stones", "and",
                                       "under", "a",     "bridge",   "of",   "old",    "grey",
                                       "wood",  "where", "children", "sang"};
  std::string text;
  std::uint32_t state = 12345;
  while (text.size() < bytes) {
    state = state * 1664525u + 1013904223u;
    text += kWords[state >> 28];
    text += state >> 24 & 7 ? " " : ".\n";
  }
  text.resize(bytes);
  return text;
}

}  // namespace meshloom::tests
