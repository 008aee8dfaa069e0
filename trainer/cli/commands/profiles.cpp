#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "hal/profile.h"
#include "trainer/cli/command.h"

namespace meshloom::trainer {
namespace {

int list(const std::string& name, bool json) {
  if (!name.empty()) {
    fmt::print("{}\n", hal::to_json(hal::find_profile(name)));
    return 0;
  }
  if (json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const hal::Profile& profile : hal::shipped_profiles())
      rows.push_back(nlohmann::ordered_json::parse(hal::to_json(profile)));
    fmt::print("{}\n", rows.dump(2));
    return 0;
  }
  fmt::print("{:<12} {:<9} {:>10} {:>10} {:>12} {:>12}  {}\n", "profile", "kind", "memory", "bytes/s",
             "f32 FLOP/s", "bf16 FLOP/s", "product");
  const auto rate = [](double value) { return value > 0 ? count_text(value) : std::string("-"); };
  for (const hal::Profile& p : hal::shipped_profiles())
    fmt::print("{:<12} {:<9} {:>10} {:>10} {:>12} {:>12}  {}\n", p.name, hal::to_string(p.kind),
               bytes_text(static_cast<double>(p.memory_bytes)), rate(p.memory_bytes_per_second),
               rate(p.flops(hal::DType::f32)), rate(p.flops(hal::DType::bf16)), p.product);
  return 0;
}

}  // namespace

void add_profiles(CLI::App& app, const Registries&, Action& action) {
  CLI::App* command = app.add_subcommand("profiles", "List the known chips, or print one with its sources");
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command->add_option("name", *name, "Print this profile as JSON, with the source of each number");
  command->add_flag("--json", *json, "Print a JSON list");
  command->footer("Examples:\n  meshloom profiles\n  meshloom profiles tpu-v5e");
  command->callback([=, &action] { action = [=] { return list(*name, *json); }; });
}

}  // namespace meshloom::trainer
