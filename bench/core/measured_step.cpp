#include "bench/core/measured_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/core/json_fields.h"
#include "bench/core/train_step.h"
#include "hal/error.h"

namespace meshloom::bench {

MeasuredStep parse_measured_step(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, kStepSchema, where);
  MeasuredStep step;
  step.header = get_header(json, where);
  get_field(json, "tokens", where, step.tokens, /*required=*/true);
  get_field(json, "wall_seconds", where, step.wall_seconds, /*required=*/true);
  get_field(json, "kernel_seconds", where, step.kernel_seconds, /*required=*/true);
  if (step.wall_seconds <= 0)
    throw Error(where, "must have the time of a whole step", "a run that was stopped before");
  const auto calls = json.find("calls");
  if (calls == json.end() || !calls->is_array()) throw Error(where, "must have the list calls", "none");
  std::size_t index = 0;
  for (const Json& item : *calls) {
    const std::string there = fmt::format("{}, calls[{}]", where, index++);
    if (!item.is_object()) refuse(there, "must be an object", item);
    std::string call, variant;
    std::int64_t times = 0;
    double seconds = 0;
    get_field(item, "call", there, call, /*required=*/true);
    get_field(item, "variant", there, variant);
    get_field(item, "times", there, times, /*required=*/true);
    get_field(item, "seconds", there, seconds, /*required=*/true);
    MeasuredStep::Calls& kind =
        step.calls.try_emplace(call, MeasuredStep::Calls{variant, 0, 0}).first->second;
    kind.times += times;
    kind.seconds += static_cast<double>(times) * seconds;
  }
  return step;
}

void compare(EstimatedStep& step, const MeasuredStep& measured, const std::string& where) {
  if (measured.tokens != step.tokens)
    throw Error(where, fmt::format("must be of a step of {:.0f} tokens, as this recipe has", step.tokens),
                fmt::format("{:.0f}", measured.tokens));
  bool any = false;
  for (EstimatedRow& row : step.rows) {
    const auto it = measured.calls.find(row.text);
    if (it == measured.calls.end()) continue;
    any = true;
    row.measured_seconds = it->second.seconds;
    row.measured_variant = it->second.variant;
  }
  if (!any) throw Error(where, "must have calls of this recipe", "none of them");
  step.measured_on = fmt::format("{}, {}", measured.header.get("device"), measured.header.get("driver"));
  step.measured_wall_seconds = measured.wall_seconds;
  step.measured_kernel_seconds = measured.kernel_seconds;
  const auto gap = [](const EstimatedRow& row) {
    return row.compared() ? std::abs(row.measured_seconds - row.likely_seconds()) : 0;
  };
  std::stable_sort(step.rows.begin(), step.rows.end(),
                   [&](const EstimatedRow& a, const EstimatedRow& b) { return gap(a) > gap(b); });
}

}  // namespace meshloom::bench
