#include "trainer/compose/cost/measured_times.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "hal/cache/disk_cache.h"
#include "hal/error.h"
#include "kernels/core/contract.h"
#include "kernels/core/variant.h"
#include "trainer/compose/tuning/tuning.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

constexpr const char* kMeasuredSchema = "meshloom-measured/1";
constexpr double kFlopsPerByte = 10;

double seconds_member(const nlohmann::json& object, const char* name, const std::string& where) {
  const double seconds = object.at(name).get<double>();
  if (!std::isfinite(seconds) || std::abs(seconds) > 1e6)
    throw Error(where, std::string(name) + " must be a number of seconds", shown_json(object.at(name)));
  return seconds;
}

}  // namespace

std::string measured_key(const std::string& call, const kernels::Choice& choice) {
  std::string key = call + " @ " + choice.variant->name;
  for (const auto& [name, value] : choice.params) key += " " + name + "=" + std::to_string(value);
  return key;
}

double work_of(const kernels::CallView& call, const kernels::Choice& choice) {
  const kernels::Contract& contract = *choice.variant->contract;
  return contract.flops(call) + kFlopsPerByte * contract.bytes(call);
}

MeasuredCall measured_call(const kernels::CallView& call, const kernels::Choice& choice) {
  MeasuredCall described;
  described.group = std::string(call.op) + " " + choice.variant->name;
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types)
      described.group += " " + std::string(hal::to_string(type.dtype));
  described.attrs = to_string(call.attrs);
  described.work = work_of(call, choice);
  return described;
}

MeasuredTimes::MeasuredTimes(const hal::DeviceInfo& device) : key_(Tuning(device).key()) {}

std::filesystem::path MeasuredTimes::path() const {
  return Tuning::folder("measured") / Tuning::file_name(key_);
}

std::optional<MeasuredTimes> MeasuredTimes::load(const hal::DeviceInfo& device, std::string* note) {
  const MeasuredTimes wanted(device);
  if (hal::cache_folder().empty()) return std::nullopt;
  const std::filesystem::path path = wanted.path();
  if (std::error_code ignored; !std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    const std::string where = "'" + path.string() + "'";
    MeasuredTimes times = parse(read_file(path.string(), where), where);
    if (times.key_ != wanted.key_) return std::nullopt;  // another key with the same hash
    return times;
  } catch (const hal::Error& error) {
    if (note) *note = std::string("the measured times cannot be read and are ignored; ") + error.what();
    return std::nullopt;
  }
}

MeasuredTimes MeasuredTimes::parse(std::string_view text, const std::string& where) {
  constexpr int kDepth = 4;
  const auto json = parse_json(text, where, "the file", kDepth);
  MeasuredTimes times;
  try {
    if (json.at("schema") != kMeasuredSchema)
      throw Error(where,
                  std::string("must be ") + kMeasuredSchema + ", as `meshloom bench calibrate` writes it",
                  shown_json(json.at("schema")));
    times.key_ = json.at("key").get<std::map<std::string, std::string>>();
    for (const auto& [name, item] : json.at("steps").items()) {
      MeasuredStep& step = times.steps_[name];
      step = {seconds_member(item, "seconds", where), seconds_member(item, "of_calls", where),
              item.at("calls").get<double>()};
      if (!(step.seconds > 0 && step.of_calls > 0 && step.calls >= 1 && step.calls < 1e9))
        throw Error(where, "a step must have calls and take more than 0 seconds", shown_json(item));
    }
    for (const auto& [key, item] : json.at("calls").items()) {
      MeasuredCall& call = times.calls_[key];
      call.group = item.at("group").get<std::string>();
      call.attrs = item.at("attrs").get<std::string>();
      call.work = item.at("work").get<double>();
      call.seconds = seconds_member(item, "seconds", where);
      if (!std::isfinite(call.work) || call.work < 0 || call.seconds <= 0)
        throw Error(where, "a call must have work and take more than 0 seconds", shown_json(item));
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(where, "must be a file of measured times, as `meshloom bench calibrate` writes it",
                error.what());
  }
  return times;
}

std::string MeasuredTimes::to_json() const {
  nlohmann::ordered_json json;
  json["schema"] = kMeasuredSchema;
  json["key"] = key_;
  json["steps"] = nlohmann::ordered_json::object();
  for (const auto& [name, step] : steps_)
    json["steps"][name] = {{"seconds", step.seconds}, {"of_calls", step.of_calls}, {"calls", step.calls}};
  json["calls"] = nlohmann::ordered_json::object();
  for (const auto& [key, call] : calls_)
    json["calls"][key] = {
        {"group", call.group}, {"attrs", call.attrs}, {"work", call.work}, {"seconds", call.seconds}};
  return json.dump(1) + "\n";
}

double MeasuredTimes::between_calls() const {
  double numerator = 0, denominator = 0;
  for (const auto& [name, step] : steps_) {
    const double weight = 1 / (step.seconds * step.seconds);
    numerator += weight * (step.seconds - step.of_calls) * step.calls;
    denominator += weight * step.calls * step.calls;
  }
  return denominator > 0 ? numerator / denominator : 0;
}

void MeasuredTimes::save() const {
  const std::filesystem::path target = path();
  std::error_code ignored;
  std::filesystem::create_directories(target.parent_path(), ignored);
  write_file(target.string(), to_json());
}

}  // namespace meshloom::trainer
