#include "trainer/compose/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "embedded_efficiencies.h"
#include "hal/cache/disk_cache.h"
#include "hal/error.h"
#include "kernels/core/contract.h"
#include "kernels/core/variant.h"
#include "kernels/program/call_text.h"
#include "layers/config/glob.h"
#include "trainer/compose/passes/roofline.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

struct EfficiencyTable {
  struct Entry {
    Efficiency efficiency;
    layers::Glob op, variant;
  };
  struct Launch {
    std::string kind;
    double seconds = 0;
    std::string source;
  };
  std::vector<Entry> entries;
  std::vector<Launch> launches;
};

const EfficiencyTable& table() {
  static const EfficiencyTable all = [] {
    constexpr int kDepth = 4;
    EfficiencyTable parsed;
    for (const embedded::File& file : embedded::efficiencies()) {
      const std::string where = "efficiencies '" + std::string(file.name) + "' in the program";
      const auto json = parse_json(file.text, where, "the file", kDepth);
      for (const auto& item : json.at("efficiencies")) {
        Efficiency entry{item.at("op"),    item.at("variant"), item.at("kind"),
                         item.at("flops"), item.at("bytes"),   item.at("source")};
        if (!(entry.flops > 0 && entry.flops <= 1 && entry.bytes > 0 && entry.bytes <= 1))
          throw Error(where, "an efficiency must be above 0, and 1 at most", shown_json(item));
        if (entry.source.empty()) throw Error(where, "an efficiency must name its source", shown_json(item));
        layers::Glob op(entry.op), variant(entry.variant);
        parsed.entries.push_back({std::move(entry), std::move(op), std::move(variant)});
      }
      for (const auto& item : json.at("launch_seconds"))
        parsed.launches.push_back({item.at("kind"), item.at("value"), item.at("source")});
    }
    return parsed;
  }();
  return all;
}

// A driver of the processor is a kind of its own, such as "opencl on the processor", whatever it runs as.
bool is_kind(const std::string& kind, const hal::DeviceInfo& device) {
  if (kind.empty()) return true;
  return kind ==
         (device.is_cpu ? device.backend + " on the processor" : std::string(to_string(device.profile.kind)));
}

// The device with the rates of what computes: those of the processor where it runs as another chip.
hal::DeviceInfo computing(hal::DeviceInfo device) {
  if (device.is_cpu && device.profile.kind != hal::ProfileKind::host)
    device.profile = hal::find_profile("host-cpu");
  return device;
}

// Casts of f32 copies, and the sums of products that are cut into parts, are dispatches of their own.
double dispatches_of(const kernels::Choice& choice, const kernels::CallView& call) {
  double count = 1;
  if (choice.params.count(kernels::kF32Fallback))
    for (const auto* types : {&call.inputs, &call.outputs})
      for (const kernels::TensorType& type : *types)
        count += type.dtype == hal::DType::bf16 || type.dtype == hal::DType::f16 ? 1 : 0;
  if (const auto parts = choice.params.find("parts"); parts != choice.params.end() && parts->second > 1)
    ++count;
  return count;
}

double copied_bytes(const kernels::Choice& choice, const kernels::CallView& call) {
  if (!choice.params.count(kernels::kF32Fallback)) return 0;
  double bytes = 0;  // each is read as 16 bits, written as f32, and read again; outputs likewise
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types)
      if (type.dtype == hal::DType::bf16 || type.dtype == hal::DType::f16)
        bytes += 4 * static_cast<double>(type.bytes());
  return bytes;
}

}  // namespace

const Efficiency& efficiency_of(const kernels::Choice& choice, const hal::DeviceInfo& device) {
  for (const auto& [efficiency, op, variant] : table().entries)
    if (is_kind(efficiency.kind, device) && op.matches(choice.variant->op) &&
        variant.matches(choice.variant->name))
      return efficiency;
  throw Error("efficiencies", "one must match " + choice.variant->op + " " + choice.variant->name, "none");
}

std::pair<double, std::string> launch_seconds(const hal::DeviceInfo& device) {
  for (const EfficiencyTable::Launch& launch : table().launches)
    if (is_kind(launch.kind, device)) return {launch.seconds, launch.source};
  throw Error("launch_seconds", "one must match every device", device.id);
}

CostModel::CostModel(const hal::DeviceInfo& device) : device_(device), computing_(computing(device)) {
  times_ = MeasuredTimes::load(device, &note_);
  if (!hal::cache_folder().empty()) tuning_ = Tuning::load(device);
  fit_lines();
}

CostModel::CostModel(const hal::DeviceInfo& device, std::optional<MeasuredTimes> times)
    : device_(device), computing_(computing(device)), times_(std::move(times)) {
  fit_lines();
}

void CostModel::fit_lines() {
  if (!times_ || times_->calls().empty()) return;
  between_ = times_->between_calls();
  double launch = 1;
  for (const auto& [key, call] : times_->calls()) {
    exact_[{call.group, call.attrs}].points.push_back({call.work, call.seconds});
    groups_[call.group].points.push_back({call.work, call.seconds});
    launch = std::min(launch, call.seconds);
  }
  for (auto& [key, line] : exact_) fit(line, launch);
  for (auto& [key, line] : groups_) fit(line, launch);
}

// Least squares of the relative errors. One point, or points that do not rise, give a line through the origin of a call
// that only starts: `launch`.
void CostModel::fit(Line& line, double launch) {
  double ww = 0, w1 = 0, one = 0, wt = 0, t1 = 0;
  for (const auto& [work, seconds] : line.points) {
    const double weight = 1 / (seconds * seconds);
    ww += weight * work * work;
    w1 += weight * work;
    one += weight;
    wt += weight * work * seconds;
    t1 += weight * seconds;
  }
  const double determinant = ww * one - w1 * w1;
  if (line.points.size() > 1 && determinant > 1e-6 * ww * one) {
    line.start = (t1 * ww - wt * w1) / determinant;
    line.slope = (wt * one - t1 * w1) / determinant;
    if (line.start >= 0 && line.slope >= 0) return;
  }
  line.start = launch;
  line.slope = ww > 0 ? std::max(0.0, (wt - launch * w1) / ww) : 0;
}

double CostModel::Line::predict(double work) const {
  const Point* nearest = nullptr;
  const auto distance = [&](const Point& point) {
    return std::abs(std::log(std::max(1.0, point.work) / std::max(1.0, work)));
  };
  for (const Point& point : points)
    if (!nearest || distance(point) < distance(*nearest)) nearest = &point;
  const double here = at(nearest->work);
  return here > 0 ? nearest->seconds * at(work) / here : nearest->seconds;
}

double CostModel::fitted(const kernels::Choice& choice, const kernels::CallView& call) const {
  const kernels::Contract& contract = *choice.variant->contract;
  const Efficiency& efficiency = efficiency_of(choice, computing_);
  double rate = unit_rate(choice, call, computing_);
  if (rate <= 0) rate = hal::peak_flops(computing_.profile, hal::DType::f32);
  const double bandwidth = computing_.profile.memory_bytes_per_second;
  double seconds = 0;
  if (rate > 0) seconds = contract.flops(call) / (rate * efficiency.flops);
  if (bandwidth > 0) {
    seconds = std::max(seconds, contract.bytes(call) / (bandwidth * efficiency.bytes));
    seconds += copied_bytes(choice, call) / bandwidth;
  }
  return seconds + dispatches_of(choice, call) * launch_seconds(computing_).first;
}

void CostModel::predict(kernels::Choice& choice, const std::string& key,
                        const kernels::CallView& call) const {
  choice.floor_seconds = roofline_seconds(choice, call, device_);
  const double between = between_;
  if (times_) {
    const auto found = times_->calls().find(measured_key(key, choice));
    if (found != times_->calls().end()) {
      choice.basis = kernels::TimeBasis::measured;
      choice.predicted_seconds = std::max(0.0, found->second.seconds + between);
      return;
    }
  }
  if (const TunedCall* tuned = tuning_ ? tuning_->find(key) : nullptr)
    if (tuned->seconds > 0 && tuned->variant == choice.variant->name && tuned->params == choice.params) {
      choice.basis = kernels::TimeBasis::measured;
      choice.predicted_seconds = tuned->seconds + std::max(0.0, between);
      return;
    }
  const MeasuredCall described = measured_call(call, choice);
  const auto exact = exact_.find({described.group, described.attrs});
  const auto group = groups_.find(described.group);
  choice.basis = kernels::TimeBasis::similar;
  if (exact != exact_.end())
    choice.predicted_seconds = exact->second.predict(described.work) + between;
  else if (group != groups_.end())
    choice.predicted_seconds = group->second.predict(described.work) + between;
  else {
    choice.basis = kernels::TimeBasis::fitted;
    choice.predicted_seconds = fitted(choice, call);
  }
  choice.predicted_seconds = std::max(choice.predicted_seconds, choice.floor_seconds);
}

void predict_plan(Plan& plan, const CostModel& costs) {
  for (auto& [step, planned] : plan.steps.programs) {
    if (planned.on_host) continue;
    for (kernels::Call& call : planned.program.calls) {
      if (!call.choice || call.choice->variant->contract->view || call.choice->variant->contract->moves)
        continue;
      const kernels::CallTypes types(planned.program, call);
      costs.predict(*call.choice, kernels::call_text(call.op, types.inputs, call.attrs), types.view(call));
    }
  }
}

}  // namespace meshloom::trainer
