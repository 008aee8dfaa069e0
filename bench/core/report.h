// What a run of the benchmark found, and its forms: text, JSON, CSV. The HTML page is in html.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/core/ceilings.h"

namespace meshloom::bench {

// The machine and the build, as pairs of name and text in the order to print: commit, compiler, flags,
// processor, clock, governor, date, threads, device, driver, profile.
struct Header {
  std::vector<std::pair<std::string, std::string>> fields;
  void set(const std::string& name, std::string text);
  std::string get(std::string_view name) const;  // "" when absent
};

// One measurement. Seconds are of one call; 0 where a number is not known.
struct Row {
  std::string op, shape, call;  // `call` is canonical: what a baseline is matched by
  std::string label;            // a case's name, or a module path of the recipe
  std::string dtype, device, variant;
  bool selected = false;  // what composing would choose
  std::string buffers = "warm";
  std::map<std::string, std::int64_t> params;  // tile sizes
  double seconds = 0, fastest = 0, spread = 0;
  int samples = 0, calls_per_sample = 1;
  bool noisy = false;
  double flops = 0, bytes = 0;  // of one call, by the contract
  double tflops = 0, gbs = 0;
  double peak_fraction = 0, bandwidth_fraction = 0;  // of the measured ceilings; above 1 where caches serve
  double roof_fraction = 0;                          // of what the roofline allows at this intensity
  std::string bound;                                 // compute, memory or launch
  std::int64_t per_step = 0;
  double step_share = 0;  // of the sum over the recipe's rows
  std::string check;      // ok, wrong, unchecked, failed
  double error = 0;       // as a part of what the contract allows
  std::string covered;    // by the check
  std::string problem;    // of a wrong or failed row; one line
  std::string baseline;   // what it is compared with: a peer, a variant, a file's row
  double baseline_seconds = 0;
  bool baseline_noisy = false;
  double ratio = 0;  // baseline_seconds / seconds: above 1 is faster than the baseline
  double ratio_spread = 0;
  std::string baseline_problem;  // why there is none, or what is wrong with it
  std::string verdict;           // of the gate: "", "ok", "faster", "regression", "noisy", "new"
};

struct Report {
  Header header;
  Ceilings ceilings;
  std::vector<Row> rows;
  std::vector<std::string> notes;
  bool stopped = false;  // by Ctrl-C: rows are missing
};

// Fills what follows from seconds, flops and bytes.
void rate(Row& row, const Ceilings& ceilings);
// Shares of a recipe's step, over the selected rows.
void share(std::vector<Row>& rows);

std::string to_text(const Report& report);
std::string to_csv(const Report& report);
constexpr std::string_view kSchema = "meshloom-bench/1";
std::string to_json(const Report& report);
// Reads what to_json wrote, or rows that others wrote in its form: only schema, op, call (or shape) and
// seconds must be there; unknown fields are passed over, values of a wrong type are errors. Throws Error
// (where = `where`).
Report parse_report(std::string_view text, const std::string& where);

// "1.23 ms"
std::string seconds_text(double seconds);

}  // namespace meshloom::bench
