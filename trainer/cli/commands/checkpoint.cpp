#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/command.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::ordered_json;

Json describe(const StoredTensors& file) {
  Json rows = Json::array();
  for (const StoredTensor& tensor : file.tensors())
    rows.push_back(
        {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"bytes", tensor.bytes()}});
  return rows;
}

// One checkpoint, all of whose checksums are verified. A damaged one is described by what is wrong with it.
Json describe(const std::string& path) {
  Json row{{"path", path}};
  try {
    const Checkpoint checkpoint = open_checkpoint(path);
    row["step"] = checkpoint.step;
    row["unhealthy"] = unhealthy_reason(path);
    row["state"] = parse_ordered_json(checkpoint.state, path + "/state.json", "the file", 8);
    row["model"] = describe(checkpoint.model);
    row["optimizer"] = describe(checkpoint.optimizer);
  } catch (const Error& error) {
    row["damaged"] = error.what();
  }
  return row;
}

void print_tensors(const char* kind, const Json& tensors, bool each) {
  std::int64_t bytes = 0;
  for (const Json& tensor : tensors) bytes += tensor["bytes"].get<std::int64_t>();
  fmt::print("  {:<9} {} tensors, {}\n", kind, tensors.size(), bytes_text(static_cast<double>(bytes)));
  if (!each) return;
  for (const Json& tensor : tensors)
    fmt::print("    {:<6} {:<16} {}\n", tensor["dtype"].get<std::string>(), tensor["shape"].dump(),
               tensor["name"].get<std::string>());
}

void print(const Json& row, bool each) {
  const std::string path = row["path"];
  if (row.contains("damaged")) {
    fmt::print("{}: damaged: {}\n", path, row["damaged"].get<std::string>());
    return;
  }
  const std::string unhealthy = row["unhealthy"];
  fmt::print("{}: step {}, every checksum is right{}\n", path, row["step"].get<std::int64_t>(),
             unhealthy.empty() ? "" : ", unhealthy: " + unhealthy);
  const auto said = [&](const char* pointer) {
    const Json::json_pointer at(pointer);
    if (!row["state"].contains(at)) return std::string();
    const Json& value = row["state"][at];
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  if (const std::string tokens = said("/tokens_seen"); !tokens.empty())
    fmt::print("  trained on {} tokens\n", tokens);
  if (const std::string program = said("/machine/program"); !program.empty())
    fmt::print("  written by {} on {}\n", program, said("/hardware"));
  print_tensors("model", row["model"], each);
  print_tensors("optimizer", row["optimizer"], each);
}

int run(const std::string& directory, bool each, bool json) {
  std::vector<std::string> paths;
  for (const std::int64_t step : checkpoint_steps(directory))
    paths.push_back(checkpoint_path(directory, step));
  if (paths.empty()) {
    if (!is_checkpoint(directory))
      throw Error("checkpoint", "must be a run's directory or one of its checkpoints", "'" + directory + "'");
    paths.push_back(directory);
  }
  Json rows = Json::array();
  bool damaged = false;
  for (const std::string& path : paths) {
    const Json row = describe(path);
    damaged |= row.contains("damaged");
    if (json)
      rows.push_back(row);
    else
      print(row, each);
  }
  if (json) fmt::print("{}\n", rows.dump(2, ' ', false, Json::error_handler_t::replace));
  return damaged ? 1 : 0;
}

}  // namespace

void add_checkpoint(CLI::App& app, const Registries&, Action& action) {
  CLI::App* command =
      app.add_subcommand("checkpoint", "Verify the checkpoints of a run, and show what they hold");
  auto directory = std::make_shared<std::string>();
  auto each = std::make_shared<bool>(false), json = std::make_shared<bool>(false);
  command->add_option("directory", *directory, "A run's directory, or one of its checkpoints")->required();
  command->add_flag("--tensors", *each, "List every tensor with its dtype and shape");
  command->add_flag("--json", *json, "Print a JSON list, with every tensor");
  command->footer(
      "The newest checkpoint comes first. Exit codes: 0 all are whole; 1 one is damaged, or there is none.\n"
      "Examples:\n  meshloom checkpoint run\n  meshloom checkpoint run/step-00000001 --tensors");
  command->callback([=, &action] { action = [=] { return run(*directory, *each, *json); }; });
}

}  // namespace meshloom::trainer
