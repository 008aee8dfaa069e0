#pragma once

#include "bench/core/report.h"

namespace meshloom::bench {

// Visits the fields of a row with their JSON names, in the order in which they are written, for reading and
// writing JSON and for CSV.
template <typename R, typename Visit>
void fields(R& row, Visit&& visit) {
  visit("op", row.op);
  visit("shape", row.shape);
  visit("call", row.call);
  visit("label", row.label);
  visit("dtype", row.dtype);
  visit("device", row.device);
  visit("variant", row.variant);
  visit("selected", row.selected);
  visit("buffers", row.buffers);
  visit("params", row.params);
  visit("seconds", row.seconds);
  visit("fastest", row.fastest);
  visit("spread", row.spread);
  visit("samples", row.samples);
  visit("calls_per_sample", row.calls_per_sample);
  visit("noisy", row.noisy);
  visit("flops", row.flops);
  visit("bytes", row.bytes);
  visit("tflops", row.tflops);
  visit("gbs", row.gbs);
  visit("peak_fraction", row.peak_fraction);
  visit("bandwidth_fraction", row.bandwidth_fraction);
  visit("roof_fraction", row.roof_fraction);
  visit("bound", row.bound);
  visit("per_step", row.per_step);
  visit("step_share", row.step_share);
  visit("check", row.check);
  visit("error", row.error);
  visit("covered", row.covered);
  visit("problem", row.problem);
  visit("baseline", row.baseline);
  visit("baseline_seconds", row.baseline_seconds);
  visit("baseline_noisy", row.baseline_noisy);
  visit("ratio", row.ratio);
  visit("ratio_spread", row.ratio_spread);
  visit("baseline_problem", row.baseline_problem);
  visit("verdict", row.verdict);
}

}  // namespace meshloom::bench
