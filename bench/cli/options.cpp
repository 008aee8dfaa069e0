#include "bench/cli/options.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "bench/cli/html.h"
#include "hal/error.h"

namespace meshloom::bench {
namespace {

// The number at the start of `text`, and the rest.
std::pair<double, std::string> number_and_unit(const std::string& text, const std::string& option,
                                               const std::string& rule) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) throw Error(option, rule, "'" + text + "'");
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  return {value, unit};
}

}  // namespace

void add_optional_file(CLI::App& command, const char* name, std::string& into, const char* help) {
  command
      .add_option_function<std::string>(
          name, [&into](const std::string& value) { into = value.empty() || value == "{}" ? "-" : value; },
          help)
      ->expected(0, 1)
      ->type_name("[FILE]");
}

void refuse_empty(CLI::App& command, std::initializer_list<const char*> options) {
  const CLI::Validator filled(
      [](std::string& text) {
        return text.empty() ? std::string("must not be empty; found ''") : std::string();
      },
      "");
  for (const char* name : options) command.get_option(name)->check(filled);
}

void OutputOptions::add_to(CLI::App& command) {
  add_optional_file(command, "--json", json, "Write JSON to FILE, or to stdout instead of the table");
  add_optional_file(command, "--csv", csv, "Write CSV to FILE, or to stdout instead of the table");
  command
      .add_option("--html", html,
                  "Write a self-contained HTML page: table, roofline, heat map, comparison with the baseline")
      ->type_name("FILE");
  command.add_flag("--quiet", quiet, "Print no progress on stderr");
  refuse_empty(command, {"--html"});
}

void OutputOptions::check() const {
  if (json == "-" && csv == "-") throw Error("--json, --csv", "only one of them can go to stdout", "both");
  for (const std::string& path : {json, csv, html}) {
    if (path.empty() || path == "-") continue;
    std::FILE* file = std::fopen(path.c_str(), "ab");  // keeps an existing file
    if (!file) throw Error("'" + path + "'", "must be a file that can be written", std::strerror(errno));
    std::fclose(file);
  }
}

void write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file && std::fclose(file) == 0;
  if (!written || !closed)
    throw Error("'" + path + "'", "must be a file that can be written", std::strerror(errno));
}

void write(const Report& report, const OutputOptions& options) {
  const auto put = [](const std::string& path, const std::string& text) {
    if (path == "-")
      std::fwrite(text.data(), 1, text.size(), stdout);
    else if (!path.empty())
      write_file(path, text);
  };
  if (!options.json.empty()) put(options.json, to_json(report));
  if (!options.csv.empty()) put(options.csv, to_csv(report));
  if (!options.html.empty()) put(options.html, to_html(report));
  if (options.text_on_stdout()) put("-", to_text(report));
  std::fflush(stdout);
}

double parse_duration(const std::string& text, const std::string& option) {
  const std::string rule = "must be a duration such as 90, 45s, 10m or 1.5h";
  const auto [value, unit] = number_and_unit(text, option, rule);
  const double factor = unit.empty() || unit == "s" ? 1
                        : unit == "m"               ? 60
                        : unit == "h"               ? 3600
                        : unit == "ms"              ? 1e-3
                                                    : 0;
  if (factor == 0 || value == 0 || value * factor > 1e6) throw Error(option, rule, "'" + text + "'");
  return value * factor;
}

double parse_fraction(const std::string& text, const std::string& option) {
  const std::string rule = "must be a fraction or a percentage, such as 0.05 or 5%";
  const auto [value, unit] = number_and_unit(text, option, rule);
  if ((!unit.empty() && unit != "%") || value > (unit == "%" ? 1000 : 10))
    throw Error(option, rule, "'" + text + "'");
  return unit == "%" ? value / 100 : value;
}

}  // namespace meshloom::bench
