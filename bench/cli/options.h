// What the subcommands of `meshloom bench` share: options, output, exit codes.
#pragma once

#include <initializer_list>
#include <string>

#include "bench/core/report.h"
#include "trainer/cli/command.h"

namespace meshloom::bench {

enum ExitCode : int { kDone = 0, kWrongResult = 3, kRegression = 4, kStopped = 130 };

constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 an error; 2 wrong usage; 3 a result is wrong or a kernel failed; 4 a regression "
    "(--baseline\n"
    "with --max-regression); 130 stopped by Ctrl-C, after writing what was measured.";

struct OutputOptions {
  std::string json, csv, html;  // files; "-" = stdout; "" = not asked for
  bool quiet = false;

  void add_to(CLI::App& command);
  bool text_on_stdout() const { return json != "-" && csv != "-"; }
  // Throws Error when a path cannot be written: called before anything is measured.
  void check() const;
};

// An option that takes a file's name or nothing, which is stdout ("-").
void add_optional_file(CLI::App& command, const char* name, std::string& into, const char* help);

// An empty text, such as a variable that is not set, is no way to leave one of these options out.
void refuse_empty(CLI::App& command, std::initializer_list<const char*> options);

// Throws Error naming the path.
void write_file(const std::string& path, const std::string& text);

// Every form asked for, and the text unless stdout has another.
void write(const Report& report, const OutputOptions& options);

// "10m", "90", "1.5h", "45 s" -> seconds; "5%", "0.05" -> 0.05. Throw Error (where = option).
double parse_duration(const std::string& text, const std::string& option);
double parse_fraction(const std::string& text, const std::string& option);

}  // namespace meshloom::bench
