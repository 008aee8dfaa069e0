#include "bench/core/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/core/recipe.h"
#include "bench/core/table.h"
#include "hal/error.h"
#include "trainer/compose/cost/cost_model.h"
#include "trainer/execute/commands_of.h"
#include "trainer/execute/inspect_call.h"
#include "trainer/execute/list_scheduler.h"

namespace meshloom::bench {
namespace {

constexpr std::size_t kMaxShape = 60, kMaxFailures = 3;

EstimatedRow estimate(hal::Device& device, const Workload& workload) {
  EstimatedRow row;
  row.op = workload.contract->name;
  row.shape = workload.shape;
  row.variant = workload.planned->variant->name;
  row.text = workload.call();
  row.per_step = workload.per_step;
  if (row.variant == "reference") {
    row.error = "the host computes it, as no kernel of the device takes it";
    return row;
  }
  try {
    const kernels::Case call{workload.label, workload.inputs, workload.attrs};
    row.call =
        trainer::estimate_call(trainer::inspect_choice(device, *workload.contract, call, *workload.planned),
                               *workload.contract, workload.view(), device.info());
  } catch (const Error& error) {
    row.error = error.what();
  }
  return row;
}

template <double trainer::EstimatedCall::*seconds>
double sum(const EstimatedStep& step) {
  double total = step.copy_seconds - step.shared_launch_seconds;
  for (const EstimatedRow& row : step.rows) total += static_cast<double>(row.per_step) * row.call.*seconds;
  return total;
}

// What the calls' times have too much: each counts a start for every dispatch, where those that share a launch start once, and those
// between the same barriers side by side.
double shared_launch_seconds(const EstimatedStep& step, const kernels::Catalog& catalog,
                             const trainer::Plan& plan, const hal::DeviceInfo& device) {
  double dispatches = 0;
  for (const EstimatedRow& row : step.rows)
    dispatches += static_cast<double>(row.per_step) * row.call.dispatches;
  const trainer::SubmissionSummary all = trainer::submissions_of(plan, catalog, device, {});
  const std::int64_t starts = trainer::overlaps_dispatches(device) ? all.barriers + 1 : all.launches;
  return std::max(0.0, dispatches - static_cast<double>(starts)) * trainer::launch_seconds(device).first;
}

std::string rates_text(const EstimatedStep& step, double seconds) {
  if (seconds <= 0) return "unknown";
  return fmt::format(
      "{:.4g} ms, {:.0f} tokens/s, {:.3g} TFLOP/s{}", 1e3 * seconds, step.tokens / seconds,
      step.flops / seconds / 1e12,
      step.peak > 0 ? fmt::format(", MFU {:.1f} %", 100 * step.flops / seconds / step.peak) : "");
}

// What a run took beside the estimate of it, and how much of it agrees.
std::string measured_text(const EstimatedStep& step) {
  double all = 0, agreeing = 0;
  std::size_t kinds = 0, good = 0, missing = 0;
  for (const EstimatedRow& row : step.rows) {
    if (!row.compared()) {
      ++missing;
      continue;
    }
    ++kinds;
    all += row.measured_seconds;
    if (!row.agrees()) continue;
    ++good;
    agreeing += row.measured_seconds;
  }
  std::string text = fmt::format(
      "{}: measured {} (whole step on {}), its calls {:.4g} ms one after another\n"
      "{} of {} kinds of calls, {:.0f} % of their measured time, are within {:.0f} % of what is likely{}\n",
      step.recipe, rates_text(step, step.measured_wall_seconds), step.measured_on,
      1e3 * step.measured_kernel_seconds, good, kinds, all > 0 ? 100 * agreeing / all : 0,
      100 * kMaxDeviation, good < kinds ? "; ! marks the others" : "");
  if (missing > 0) text += fmt::format("{} kinds of calls of the estimate were not measured\n", missing);
  return text;
}

}  // namespace

double EstimatedRow::likely_seconds() const { return static_cast<double>(per_step) * call.likely_seconds; }
bool EstimatedRow::agrees() const {
  return compared() && std::abs(measured_seconds / likely_seconds() - 1) <= kMaxDeviation;
}
double EstimatedStep::likely_seconds() const { return sum<&trainer::EstimatedCall::likely_seconds>(*this); }
double EstimatedStep::best_seconds() const { return sum<&trainer::EstimatedCall::best_seconds>(*this); }
std::size_t EstimatedStep::failed() const {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [](const EstimatedRow& row) { return !row.error.empty(); }));
}

EstimatedStep estimate_step(hal::Device& device, const kernels::Catalog& catalog, const trainer::Plan& plan,
                            const EstimateOptions& options) {
  EstimatedStep step;
  step.flops = plan.update_flops();
  step.copy_seconds = plan.host.copy_seconds;
  std::vector<Workload> calls = recipe_workloads(plan, catalog);
  std::erase_if(calls, [](const Workload& call) { return call.contract->moves != nullptr; });
  int done = 0;
  for (const Workload& call : calls) {
    if (options.stopped && options.stopped()) {
      step.stopped = true;
      break;
    }
    if (options.progress)
      options.progress(done++, static_cast<int>(calls.size()), call.contract->name + " " + call.shape);
    step.rows.push_back(estimate(device, call));
  }
  if (!step.stopped) step.shared_launch_seconds = shared_launch_seconds(step, catalog, plan, device.info());
  std::stable_sort(step.rows.begin(), step.rows.end(), [](const EstimatedRow& a, const EstimatedRow& b) {
    return a.likely_seconds() > b.likely_seconds();
  });
  return step;
}

std::string to_text(const EstimatedStep& step, std::size_t max_rows) {
  const bool measured = !step.measured_on.empty();
  std::vector<std::vector<std::string>> rows{{"op", "shape", "variant", "calls", "ms", "at best",
                                              measured ? "measured" : "", measured ? "ratio" : "", "TFLOP/s",
                                              "of the unit", "GB/s", "bound by"}};
  std::string failures;
  double left = 0;
  std::size_t more = 0, failed = 0;
  for (const EstimatedRow& row : step.rows) {
    if (!row.error.empty()) {
      if (++failed <= kMaxFailures)
        failures += fmt::format("not estimated: {} {}: {}\n", row.op, row.shape, row.error);
      continue;
    }
    const trainer::EstimatedCall& call = row.call;
    if (rows.size() > max_rows) {
      left += row.likely_seconds();
      ++more;
      continue;
    }
    const auto calls = static_cast<double>(row.per_step);
    const bool multiplies = call.flops > 0 && call.bound == trainer::Bound::multiplying;
    std::string variant = row.variant;
    if (row.compared() && row.measured_variant != row.variant)
      variant += fmt::format(" (measured: {})", row.measured_variant);
    rows.push_back({row.op, shortened(row.shape, kMaxShape), variant, std::to_string(row.per_step),
                    fmt::format("{:.3f}", 1e3 * row.likely_seconds()),
                    fmt::format("{:.3f}", 1e3 * calls * call.best_seconds),
                    row.compared() ? fmt::format("{:.3f}", 1e3 * row.measured_seconds) : "",
                    row.compared() ? fmt::format("{:.2f}{}", row.measured_seconds / row.likely_seconds(),
                                                 row.agrees() ? "  " : " !")
                                   : "",
                    multiplies ? fmt::format("{:.1f}", call.flops / call.likely_seconds / 1e12) : "",
                    multiplies ? fmt::format("{:.0f} %", 100 * call.peak_share) : "",
                    fmt::format("{:.0f}", call.bytes / call.likely_seconds / 1e9),
                    std::string(to_string(call.bound))});
  }
  std::string text =
      table(rows, {true, true, true, false, false, false, false, false, false, false, false, true});
  if (more > 0) text += fmt::format("and {} kinds of calls more, {:.3f} ms\n", more, 1e3 * left);
  if (step.copy_seconds > 0)
    text +=
        fmt::format("copies between the memories of device and host, {:.3f} ms\n", 1e3 * step.copy_seconds);
  if (step.shared_launch_seconds > 0)
    text += fmt::format(
        "{:.3f} ms less than the sum of the calls, as dispatches share launches or run between the same "
        "barriers\n",
        1e3 * step.shared_launch_seconds);
  text += failures;
  if (failed > 0)
    return text + fmt::format("{}: no estimate, as {} of {} kinds of calls have none\n", step.recipe, failed,
                              step.rows.size());
  text += fmt::format("{}: predicted {} (likely)\n", step.recipe, rates_text(step, step.likely_seconds()));
  text += fmt::format("{}: predicted {} (at best)\n", step.recipe, rates_text(step, step.best_seconds()));
  return measured ? text + measured_text(step) : text;
}

std::string to_json(const EstimatedStep& step, const hal::DeviceInfo& device) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const EstimatedRow& row : step.rows) {
    nlohmann::ordered_json json{{"op", row.op},
                                {"shape", row.shape},
                                {"call", row.text},
                                {"variant", row.variant},
                                {"per_step", row.per_step}};
    if (!row.error.empty())
      json["error"] = row.error;
    else
      json.update({{"likely_seconds", row.call.likely_seconds},
                   {"best_seconds", row.call.best_seconds},
                   {"flops", row.call.flops},
                   {"bytes", row.call.bytes},
                   {"peak_share", row.call.peak_share},
                   {"bound", to_string(row.call.bound)}});
    if (row.compared())
      json.update({{"measured_seconds", row.measured_seconds}, {"measured_variant", row.measured_variant}});
    rows.push_back(std::move(json));
  }
  nlohmann::ordered_json all{{"recipe", step.recipe},
                             {"device", device.id},
                             {"name", device.name},
                             {"driver", device.driver},
                             {"profile", device.profile.name},
                             {"predicted", true},
                             {"tokens", step.tokens},
                             {"flops", step.flops},
                             {"peak", step.peak},
                             {"copy_seconds", step.copy_seconds},
                             {"shared_launch_seconds", step.shared_launch_seconds},
                             {"likely_seconds", step.likely_seconds()},
                             {"best_seconds", step.best_seconds()},
                             {"calls", rows}};
  if (!step.measured_on.empty())
    all.update({{"measured_on", step.measured_on},
                {"measured_wall_seconds", step.measured_wall_seconds},
                {"measured_kernel_seconds", step.measured_kernel_seconds}});
  return all.dump(2) + "\n";
}

}  // namespace meshloom::bench
