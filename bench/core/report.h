// The results of a benchmark run, and their formats: text, JSON, CSV. The HTML page is in html.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure/ceilings.h"

namespace meshloom::bench {

// The machine and the build, as names and texts in the order in which they are printed: commit, compiler,
// flags, processor, clock, governor, date, threads, device, driver, profile.
struct Header {
  std::vector<std::pair<std::string, std::string>> fields;
  void set(const std::string& name, std::string text);
  std::string get(std::string_view name) const;  // "" when absent
};

// One measurement. Seconds are per call; 0 = unknown.
struct Row {
  std::string op, shape, call;  // `call` is canonical and identifies the row in baselines
  std::string label;            // the name of a case, or a module path of the recipe
  std::string dtype, device, variant;
  bool selected = false;  // the variant that composing would choose
  std::string buffers = "warm";
  std::map<std::string, std::int64_t> params;  // tile sizes
  double seconds = 0, fastest = 0, spread = 0;
  int samples = 0, calls_per_sample = 1;
  bool noisy = false;
  double flops = 0, bytes = 0;  // of one call, from the contract
  double tflops = 0, gbs = 0;
  double peak_fraction = 0,
         bandwidth_fraction = 0;  // of the measured ceilings; above 1 when data comes from caches
  double roof_fraction = 0;       // of the roofline at this intensity
  std::string bound;              // compute, memory or launch
  std::int64_t per_step = 0;
  double step_share = 0;  // of the sum over the rows of the recipe
  std::string check;      // ok, wrong, unchecked, failed
  double error = 0;       // as a fraction of the contract's tolerance
  std::string covered;    // the part of the outputs that was checked
  std::string problem;    // why a row is wrong or failed, in one line
  std::string baseline;   // what it is compared with: a peer, a variant, or a row of a file
  double baseline_seconds = 0;
  bool baseline_noisy = false;
  double ratio = 0;  // baseline_seconds / seconds: above 1 is faster than the baseline
  double ratio_spread = 0;
  std::string baseline_problem;  // why there is no baseline, or what is wrong with it
  std::string verdict;           // of the gate: "", "ok", "faster", "regression", "noisy", "new"
};

struct Report {
  Header header;
  Ceilings ceilings;
  std::vector<Row> rows;
  std::vector<std::string> notes;
  bool stopped = false;  // stopped by Ctrl-C: rows are missing
};

// Computes the fields that follow from seconds, flops and bytes.
void compute_rates(Row& row, const Ceilings& ceilings);
// Computes each selected row's share of the recipe's step.
void compute_step_shares(std::vector<Row>& rows);

std::string to_text(const Report& report);
std::string to_csv(const Report& report);
constexpr std::string_view kSchema = "meshloom-bench/1";
std::string to_json(const Report& report);
// Reads the output of to_json, or rows that other programs wrote in this format: only schema, op, call (or
// shape) and seconds are required; unknown fields are ignored, values of a wrong type are errors. Throws
// Error (where = `where`).
Report parse_report(std::string_view text, const std::string& where);

// "1.23 ms"
std::string seconds_text(double seconds);

}  // namespace meshloom::bench
