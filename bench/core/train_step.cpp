#include "bench/core/train_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/core/recipe.h"
#include "bench/core/table.h"
#include "bench/measure/clock.h"
#include "bench/measure/workload.h"
#include "hal/error.h"
#include "hal/suggest.h"
#include "kernels/core/rng.h"
#include "kernels/program/call_text.h"
#include "layers/models/trace.h"
#include "trainer/execute/session.h"

namespace meshloom::bench {
namespace {

using Json = nlohmann::ordered_json;

void write_batch(const trainer::TrainerConfig& config, trainer::Session& session) {
  const std::int64_t vocabulary = layers::vocabulary(*config.model);
  for (const char* name : {"tokens", "targets", "source"}) {
    if (!session.plan().persistent_types.count(name)) continue;
    kernels::HostTensor ids(session.plan().persistent_types.at(name));
    kernels::fill_integers({ids.type, ids.data.data()}, 1, 0, vocabulary - 1);
    session.write(name, ids.data);
  }
  const float rate = 1e-4f;
  session.write("lr", std::as_bytes(std::span(&rate, 1)));
}

const std::string& field(const StepCall& call, const std::string& name) {
  if (name == "op") return call.op;
  if (name == "variant") return call.variant;
  if (name == "phase") return call.phase;
  if (name == "path") return call.path;
  if (name == "tag") return call.tag;
  if (name == "shape") return call.shape;
  const std::vector<std::string> known{"op", "variant", "phase", "path", "tag", "shape"};
  throw Error("--by", "must be some of " + hal::join(known) + hal::suggestion(name, known), "'" + name + "'");
}

}  // namespace

double StepReport::kernel_seconds() const {
  double sum = 0;
  for (const StepCall& call : calls) sum += median(call.seconds) * static_cast<double>(call.times);
  return sum;
}

double StepReport::flops() const {
  double sum = 0;
  for (const StepCall& call : calls) sum += call.flops * static_cast<double>(call.times);
  return sum;
}

double StepReport::peak_seconds(const StepCall& call) const {
  const double peak = ceilings.flops_of(call.op, call.dtype);
  return peak > 0 ? call.flops / peak : 0;
}

double StepReport::peak_seconds() const {
  double sum = 0;
  for (const StepCall& call : calls) sum += peak_seconds(call) * static_cast<double>(call.times);
  return sum;
}

void StepReport::raise_ceilings() {
  for (const StepCall& call : calls)
    if (const double seconds = median(call.seconds); seconds > 0)
      ceilings.raise(call.op, call.dtype, call.flops / seconds);
  // Whole steps run without timestamps, and may be faster than the sum of their calls.
  const double wall_seconds = median(wall), all = peak_seconds();
  if (wall_seconds <= 0 || all <= wall_seconds) return;
  ceilings.flops *= all / wall_seconds;
  ceilings.bf16_flops *= all / wall_seconds;
  for (auto& [dtype, reached] : ceilings.max_reached) reached *= all / wall_seconds;
}

std::vector<StepGroup> group(const StepReport& report, const std::vector<std::string>& by) {
  for (const std::string& name : by) field({}, name);  // refuses unknown names even when the report is empty
  std::map<std::vector<std::string>, StepGroup> groups;
  for (const StepCall& call : report.calls) {
    std::vector<std::string> key;
    for (const std::string& name : by) key.push_back(field(call, name));
    StepGroup& group = groups[key];
    const auto times = static_cast<double>(call.times);
    group.key = key;
    group.calls += call.times;
    group.seconds += median(call.seconds) * times;
    group.flops += call.flops * times;
    group.bytes += call.bytes * times;
    group.peak_seconds += report.peak_seconds(call) * times;
  }
  std::vector<StepGroup> result;
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  std::stable_sort(result.begin(), result.end(),
                   [](const StepGroup& a, const StepGroup& b) { return a.seconds > b.seconds; });
  return result;
}

std::vector<StepCall> step_calls(const kernels::Program& program, const kernels::Catalog& catalog,
                                 std::int64_t times) {
  std::vector<StepCall> calls;
  for (const kernels::Call& call : program.calls) {
    const kernels::Contract& contract = catalog.contract(call.op);
    if (contract.view) continue;
    const kernels::CallTypes types(program, call);
    const kernels::CallView view = types.view(call);
    StepCall& entry = calls.emplace_back();
    entry.op = call.op;
    entry.variant = call.choice->variant->name;
    entry.call = kernels::call_text(call.op, types.inputs, call.attrs);
    entry.key = trainer::measured_key(entry.call, *call.choice);
    entry.measured = trainer::measured_call(view, *call.choice);
    entry.phase = to_string(call.phase);
    entry.path = call.path;
    entry.tag = call.outputs.empty() ? "" : program.value(call.outputs.front()).tag;
    for (const kernels::TensorType& type : types.inputs)
      entry.shape += (entry.shape.empty() ? "" : ", ") + to_string(type);
    if (!types.inputs.empty()) entry.dtype = hal::to_string(types.inputs.front().dtype);
    entry.flops = contract.flops(view);
    entry.bytes = contract.bytes(view);
    entry.times = times;
  }
  return calls;
}

void run_steps(const trainer::TrainerConfig& config, trainer::Plan plan, hal::Device& device,
               const kernels::Catalog& catalog, int steps, const std::function<bool()>& stopped,
               const std::function<void(int, int, const std::string&)>& progress, StepReport& report) {
  if (!device.info().timestamps)
    throw Error(device.info().id, "the device must have timestamps for a breakdown by calls",
                "a driver without timestamps");
  const std::vector<trainer::UpdateStep> update = plan.steps.update;
  for (const trainer::UpdateStep& part : update) {
    const trainer::PlannedProgram& whole = plan.steps.at(part.step);
    if (whole.on_host) continue;  // it has no time of the device
    std::vector<StepCall> calls = step_calls(whole.program, catalog, part.times);
    std::move(calls.begin(), calls.end(), std::back_inserter(report.calls));
  }
  trainer::Session session(device, catalog, std::move(plan));
  trainer::initialize(session, static_cast<std::uint64_t>(config.seed));
  write_batch(config, session);
  report.tokens = config.batch * config.sequence;

  const auto whole = [&] {
    for (const trainer::UpdateStep& part : update)
      for (std::int64_t i = 0; i < part.times; ++i) session.run(part.step);
    session.wait();
  };
  const auto halt = [&] { return report.stopped = report.stopped || (stopped && stopped()); };
  const auto say = [&](int done, const std::string& what) {
    if (progress) progress(done, 2 * steps + 1, what);
  };
  say(0, "warming up");
  whole();
  for (int s = 0; s < steps && !halt(); ++s) {
    say(2 * s + 1, fmt::format("step {}", s + 1));
    report.wall.push_back(time(whole));
    if (halt()) break;
    say(2 * s + 2, fmt::format("step {}, call by call", s + 1));
    double start = 0;
    std::size_t next = 0;
    for (const trainer::UpdateStep& part : update) {
      if (session.plan().steps.at(part.step).on_host) {
        session.run(part.step);
        continue;
      }
      for (const double seconds : session.run_timed(part.step)) {
        StepCall& call = report.calls.at(next++);
        call.start = start;
        call.seconds.push_back(seconds);
        start += seconds;
      }
    }
  }
}

std::string to_text(const StepReport& report, const std::vector<std::string>& by) {
  const Summary wall = summarize(report.wall);
  const double kernels = report.kernel_seconds();
  std::int64_t count = 0;
  for (const StepCall& call : report.calls) count += call.times;
  std::string text = header_text(report.header, report.ceilings);
  if (wall.samples == 0) return text + "stopped before the first step was done\n";
  text += fmt::format(
      "whole step   {} (+- {:.0f}%{}, {} steps, fastest {}): {:.0f} tokens/s, {:.1f} GFLOP/s, {:.1f}% of the "
      "peak\n",
      seconds_text(wall.median), 100 * wall.spread, wall.noisy ? ", noisy" : "", wall.samples,
      seconds_text(wall.fastest), static_cast<double>(report.tokens) / wall.median,
      report.flops() / wall.median * 1e-9, 100 * report.peak_seconds() / wall.median);
  text += fmt::format(
      "its {} calls  {} together by the device's clock, one after another, {:.0f}% of the whole step\n\n",
      count, seconds_text(kernels), 100 * kernels / wall.median);
  text += groups_text(report, by);
  if (report.stopped) text += "stopped: fewer steps than requested\n";
  return text;
}

std::string groups_text(const StepReport& report, const std::vector<std::string>& by) {
  const double kernels = report.kernel_seconds();
  std::vector<std::vector<std::string>> rows{by};
  std::vector<bool> left(by.size(), true);
  for (const char* name : {"calls", "time", "share", "GFLOP/s", "GB/s", "peak", "bandwidth"}) {
    rows.front().push_back(name);
    left.push_back(false);
  }
  for (const StepGroup& group : group(report, by)) {
    std::vector<std::string> row;
    for (const std::string& word : group.key) row.push_back(word.empty() ? "-" : shortened(word, 60));
    row.push_back(std::to_string(group.calls));
    row.push_back(seconds_text(group.seconds));
    row.push_back(fmt::format("{:.1f}%", kernels > 0 ? 100 * group.seconds / kernels : 0));
    const double s = std::max(group.seconds, 1e-12);
    row.push_back(fmt::format("{:.1f}", group.flops / s * 1e-9));
    row.push_back(fmt::format("{:.1f}", group.bytes / s * 1e-9));
    row.push_back(fmt::format("{:.1f}%", 100 * group.peak_seconds / s));
    row.push_back(fmt::format("{:.1f}%", report.ceilings.bytes_per_second > 0
                                             ? 100 * group.bytes / s / report.ceilings.bytes_per_second
                                             : 0));
    rows.push_back(std::move(row));
  }
  return table(rows, left);
}

Json groups_json(const StepReport& report, const std::vector<std::string>& by) {
  Json groups = Json::array();
  for (const StepGroup& group : group(report, by)) {
    Json item;
    for (std::size_t i = 0; i < by.size(); ++i) item[by[i]] = group.key[i];
    item["calls"] = group.calls;
    item["seconds"] = group.seconds;
    item["flops"] = group.flops;
    item["bytes"] = group.bytes;
    groups.push_back(std::move(item));
  }
  return groups;
}

std::string to_json(const StepReport& report, const std::vector<std::string>& by) {
  const Summary wall = summarize(report.wall);
  Json json;
  json["schema"] = kStepSchema;
  for (const auto& [name, text] : report.header.fields) json["header"][name] = text;
  json["recipe"] = report.recipe;
  json["tokens"] = report.tokens;
  json["steps"] = report.wall.size();
  json["wall_seconds"] = wall.median;
  json["wall_spread"] = wall.spread;
  json["wall_noisy"] = wall.noisy;
  json["kernel_seconds"] = report.kernel_seconds();
  json["flops"] = report.flops();
  json["ceilings"] = {{"flops", report.ceilings.flops},
                      {"bf16_flops", report.ceilings.bf16_flops},
                      {"max_reached", report.ceilings.max_reached},
                      {"bytes_per_second", report.ceilings.bytes_per_second}};
  json["stopped"] = report.stopped;
  json["groups"] = groups_json(report, by);
  json["calls"] = Json::array();
  for (const StepCall& call : report.calls) {
    const Summary summary = summarize(call.seconds);
    json["calls"].push_back({{"op", call.op},
                             {"call", call.call},
                             {"variant", call.variant},
                             {"phase", call.phase},
                             {"path", call.path},
                             {"tag", call.tag},
                             {"shape", call.shape},
                             {"times", call.times},
                             {"seconds", summary.median},
                             {"spread", summary.spread},
                             {"flops", call.flops},
                             {"bytes", call.bytes}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_trace(const StepReport& report) {
  Json events = Json::array();
  std::vector<std::string> phases;
  const auto track = [&](const std::string& phase) {
    const auto it = std::find(phases.begin(), phases.end(), phase);
    if (it != phases.end()) return it - phases.begin();
    phases.push_back(phase);
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", phases.size() - 1},
                      {"args", {{"name", phase}}}});
    return static_cast<std::ptrdiff_t>(phases.size() - 1);
  };
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", 0},
                    {"args", {{"name", report.recipe + " on " + report.header.get("device")}}}});
  for (const StepCall& call : report.calls) {
    if (call.seconds.empty()) continue;
    events.push_back({{"name", call.op + " " + call.variant},
                      {"cat", call.phase},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", track(call.phase)},
                      {"ts", call.start * 1e6},
                      {"dur", call.seconds.back() * 1e6},
                      {"args",
                       {{"path", call.path},
                        {"tag", call.tag},
                        {"shape", call.shape},
                        {"GFLOP/s", call.flops / call.seconds.back() * 1e-9},
                        {"GB/s", call.bytes / call.seconds.back() * 1e-9}}}});
  }
  Json json;
  json["traceEvents"] = std::move(events);
  json["displayTimeUnit"] = "ms";
  json["otherData"] = {{"note", "by the device's clock; a call starts when the previous one has finished"}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshloom::bench
