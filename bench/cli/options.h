// Options, output and exit codes that the subcommands of `meshloom bench` share.
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
  std::string json, csv, html;  // files; "-" = stdout; "" = not written
  bool quiet = false;

  void add_to(CLI::App& command);
  bool text_on_stdout() const { return json != "-" && csv != "-"; }
  // Throws Error when a path cannot be written; to be called before anything is measured.
  void check() const;
};

// Adds an option that takes the name of a file, or nothing for stdout ("-").
void add_optional_file(CLI::App& command, const char* name, std::string& into, const char* help);

// Refuses empty values of these options, such as from an unset shell variable.
void refuse_empty(CLI::App& command, std::initializer_list<const char*> options);

// Throws Error naming the path.
void write_file(const std::string& path, const std::string& text);

// Writes every requested format, and the text unless another format goes to stdout.
void write(const Report& report, const OutputOptions& options);

// "10m", "90", "1.5h", "45 s" -> seconds; "5%", "0.05" -> 0.05. Throw Error (where = option).
double parse_duration(const std::string& text, const std::string& option);
double parse_fraction(const std::string& text, const std::string& option);

}  // namespace meshloom::bench
