#include "trainer/run/run_state.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

// Changing these changes no number of any step. Of files, the contents are compared instead of their names.
bool free_to_change(const std::string& path) {
  static const std::set<std::string> kFree{"steps",
                                           "eval_every",
                                           "eval_batches",
                                           "checkpoint_every",
                                           "keep",
                                           "snapshot_seconds",
                                           "input.files",
                                           "input.eval_files",
                                           "input.tokenizer.file",
                                           "input.tokenizer.model",
                                           "input.tokenizer.config",
                                           "input.tokenizer.chat_template",
                                           "input.tokenizer.eos_token_ids",
                                           "input.chat_template",
                                           "input.chat_time",
                                           "device",
                                           "memory",
                                           "hardware_rules",
                                           "fit"};
  // Rematerialised values are exact copies.
  return kFree.count(path) || path.starts_with("mesh_rules") || path.starts_with("remat");
}

// Changing these changes the results by rounding only.
bool changes_rounding(const std::string& path) {
  for (const char* field :
       {"hardware", "profile", "accumulation", "offload_optimizer", "optimizer_in_backward"})
    if (path == field) return true;
  return path.starts_with("kernels") || path.starts_with("mesh.");
}

}  // namespace

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
    if (before == after || free_to_change(path)) continue;
    const std::string change = fmt::format("{}: {} -> {}", path, before.empty() ? "(absent)" : before,
                                           after.empty() ? "(absent)" : after);
    if (changes_rounding(path))
      rounding.push_back(change);
    else
      differing += (differing.empty() ? "" : ", ") + change;
  }
  if (!differing.empty())
    throw Error(where, "a run continues with the configuration that it was started with", differing);
  return rounding;
}

}  // namespace meshloom::trainer
