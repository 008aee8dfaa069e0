// An earlier report as the yardstick of this one, and the gate that a change must pass.
#pragma once

#include <string>
#include <vector>

#include "bench/core/report.h"

namespace meshloom::bench {

// The row of `baseline` that `row` is to be compared with, or nullptr. Rows match by op and call (by shape
// where the baseline names no call), dtype and buffers. Of several: the same device and variant; else the
// same device and both the selected variant (what a user gets, though the kernel be another); else, with
// `others`, the fastest of them (another library's or another device's file). Wrong results are no yardstick.
const Row* find_baseline(const Report& baseline, const Row& row, bool others = true);

// Fills baseline, baseline_seconds, ratio of every row that has a match and none yet. `name` is the file's.
void compare(Report& report, const Report& baseline, const std::string& name);

// What differs of the machine, the driver and the build, as a note; "" where nothing does.
std::string elsewhere(const Header& now, const Header& then, const std::string& name);

// Verdict of a row with a baseline on the same device:
//   regression  slower than the baseline by more than `most` (0.05 = 5 %); of a noisy row, even its fastest sample,
//               by more than that and the baseline's spread
//   noisy       slower by more than `most`, but the row is noisy, or the baseline is: said, and not counted
//   faster      by more than `most`;  ok otherwise;  new  without a baseline
std::string judge(const Row& row, const Row* baseline, double most);

// Judges every row; returns the number of regressions. Adds notes: how many of each verdict, and baseline
// rows that nothing was measured for.
int gate(Report& report, const Report& baseline, double most);

}  // namespace meshloom::bench
