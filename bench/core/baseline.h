// Compares a report with an earlier one, and gates changes by regressions.
#pragma once

#include <string>
#include <vector>

#include "bench/core/report.h"

namespace meshloom::bench {

// The row of `baseline` to compare `row` with, or nullptr. Rows match by op and call (by shape if the
// baseline has no call), dtype and buffers. Of several rows: the one with the same device and variant; else
// with the same device if both are the selected variant (what a user gets, though the kernel may differ);
// else, with `others`, the fastest one (of another library or device). Wrong results are never used.
const Row* find_baseline(const Report& baseline, const Row& row, bool others = true);

// Sets baseline, baseline_seconds and ratio of every row that has a match and no baseline yet. `name` is the
// file's name.
void compare(Report& report, const Report& baseline, const std::string& name);

// A note of what differs in machine, driver and build; "" = nothing.
std::string environment_differences(const Header& now, const Header& then, const std::string& name);

// The verdict on a row with a baseline on the same device:
//   regression  slower than the baseline by more than `max_regression` (0.05 = 5 %); of a noisy row, even its fastest sample,
//               by more than that and the baseline's spread
//   noisy       slower by more than `max_regression`, but the row or the baseline is noisy: reported, but not counted
//   faster      by more than `max_regression`;  ok otherwise;  new  without a baseline
std::string judge(const Row& row, const Row* baseline, double max_regression);

// Judges every row and returns the number of regressions. Adds notes: the number of each verdict, and the
// baseline rows that were not measured.
int gate(Report& report, const Report& baseline, double max_regression);

}  // namespace meshloom::bench
