#include "trainer/run/state/run_state.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/io/json.h"
#include "trainer/run/state/field_rules.h"

namespace meshloom::trainer {
std::string to_json(const RunState& state) {
  nlohmann::ordered_json json{{"step", state.step},
                              {"tokens_seen", state.tokens_seen},
                              {"data_xxh64", fmt::format("{:016x}", state.data)},
                              {"data_tokens", state.data_tokens},
                              {"hardware", state.hardware}};
  const Machine& machine = state.machine;
  if (!machine.device.empty())
    json["machine"] = {{"device", machine.device},
                       {"driver", machine.driver},
                       {"instructions", machine.instructions},
                       {"program", machine.program},
                       {"kernels_xxh64", machine.kernels},
                       {"variants", machine.variants}};
  if (!machine.ranks.empty()) json["machine"]["ranks"] = machine.ranks;
  json["health"] = {{"losses", state.health.losses}, {"bad_steps", state.health.bad}};
  if (state.health.lowest) json["health"]["lowest_median"] = *state.health.lowest;
  return json.dump(1) + "\n";
}

RunState parse_run_state(const std::string& text, const std::string& where) {
  try {
    const auto json = parse_json(text, where, "the file", 8);
    RunState state;
    state.step = natural_member(json, "step", where);
    state.tokens_seen = natural_member(json, "tokens_seen", where);
    state.data = std::stoull(json.at("data_xxh64").get<std::string>(), nullptr, 16);
    state.data_tokens = natural_member(json, "data_tokens", where);
    state.hardware = json.at("hardware").get<std::string>();
    if (const auto found = json.find("machine"); found != json.end()) {
      state.machine.device = found->at("device").get<std::string>();
      state.machine.driver = found->at("driver").get<std::string>();
      state.machine.instructions = found->at("instructions").get<std::string>();
      state.machine.program = found->at("program").get<std::string>();
      state.machine.kernels = found->at("kernels_xxh64").get<std::string>();
      state.machine.variants = found->at("variants").get<std::map<std::string, std::int64_t>>();
      if (const auto ranks = found->find("ranks"); ranks != found->end())
        state.machine.ranks = ranks->get<std::vector<std::string>>();
    }
    if (const auto found = json.find("health"); found != json.end()) {
      state.health.losses = found->at("losses").get<std::vector<double>>();
      if (state.health.losses.size() > DivergenceDetector::kWindow)
        throw Error(where, fmt::format("must hold at most {} losses", DivergenceDetector::kWindow),
                    fmt::format("{}", state.health.losses.size()));
      state.health.bad = natural_member(*found, "bad_steps", where);
      if (const auto lowest = found->find("lowest_median"); lowest != found->end())
        state.health.lowest = lowest->get<double>();
    }
    return state;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(where, "must be a run's state", error.what());
  }
}

std::vector<std::string> check_same_run(const TrainerConfig& then, const TrainerConfig& now,
                                        const std::string& where) {
  std::map<std::string, std::pair<std::string, std::string>> fields;
  for (const auto& [path, value] : layers::flatten(then)) fields[path].first = value;
  for (const auto& [path, value] : layers::flatten(now)) fields[path].second = value;
  std::vector<std::string> rounding;
  std::string differing;
  for (const auto& [path, values] : fields) {
    const auto& [before, after] = values;
    const FieldRule::Resume rule = field_rule(path).resume;
    if (before == after || rule == FieldRule::Resume::free) continue;
    const std::string change = fmt::format("{}: {} -> {}", path, before.empty() ? "(absent)" : before,
                                           after.empty() ? "(absent)" : after);
    if (rule == FieldRule::Resume::rounding)
      rounding.push_back(change);
    else
      differing += (differing.empty() ? "" : ", ") + change;
  }
  if (!differing.empty())
    throw Error(where, "a run continues with the configuration that it was started with", differing);
  return rounding;
}

}  // namespace meshloom::trainer
