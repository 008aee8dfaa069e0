#include "trainer/run/run_state.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/input/json.h"

namespace meshloom::trainer {
namespace {

// Changing these leaves every step's numbers as they were. The files are held to their contents instead.
bool free_to_change(const std::string& path) {
  static const std::set<std::string> kFree{"steps",  "eval_every",  "eval_batches", "checkpoint_every",
                                           "keep",   "input.files", "input.eval_files",
                                           "input.tokenizer.file", "input.tokenizer.model"};
  return kFree.count(path) || path.starts_with("mesh_rules");
}

// Changing these keeps the results but for rounding.
bool changes_rounding(const std::string& path) {
  for (const char* field : {"hardware", "device", "profile", "accumulation"})
    if (path == field) return true;
  return path.starts_with("kernels") || path.starts_with("remat") || path.starts_with("mesh.");
}

}  // namespace

std::string to_json(const RunState& state) {
  const nlohmann::ordered_json json{{"step", state.step},
                                    {"tokens_seen", state.tokens_seen},
                                    {"data_xxh64", fmt::format("{:016x}", state.data)},
                                    {"data_tokens", state.data_tokens},
                                    {"hardware", state.hardware}};
  return json.dump(1) + "\n";
}

RunState parse_run_state(const std::string& text, const std::string& where) {
  try {
    const auto json = nlohmann::json::parse(text);
    RunState state;
    state.step = natural_member(json, "step", where);
    state.tokens_seen = natural_member(json, "tokens_seen", where);
    state.data = std::stoull(json.at("data_xxh64").get<std::string>(), nullptr, 16);
    state.data_tokens = natural_member(json, "data_tokens", where);
    state.hardware = json.at("hardware").get<std::string>();
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
  std::vector<std::string> notes;
  std::string differing;
  for (const auto& [path, values] : fields) {
    const auto& [before, after] = values;
    if (before == after || free_to_change(path)) continue;
    const std::string change = fmt::format("{}: {} -> {}", path, before.empty() ? "(absent)" : before,
                                           after.empty() ? "(absent)" : after);
    if (changes_rounding(path)) notes.push_back("resumes with another " + change + "; equal but for rounding");
    else differing += (differing.empty() ? "" : ", ") + change;
  }
  if (!differing.empty())
    throw Error(where, "a run goes on with the configuration it was started with", differing);
  return notes;
}

}  // namespace meshloom::trainer
