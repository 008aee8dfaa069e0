#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "hal/driver.h"
#include "hal/suggest.h"
#include "trainer/cli/command.h"
#include "trainer/cli/self_test.h"
#include "trainer/compose/report.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct DevicesOptions {
  bool json = false, no_test = false, describe = false;
  std::string device;
};

std::vector<std::string> matrix_names(const hal::Limits& limits) {
  std::vector<std::string> names;
  for (const hal::MatrixShape& shape : limits.matrix_shapes) names.push_back(to_string(shape));
  return names;
}

OrderedJson limits_json(const hal::Limits& limits) {
  return {{"memory_bytes", limits.memory_bytes},
          {"max_allocation_bytes", limits.max_allocation_bytes},
          {"max_local_bytes", limits.max_local_bytes},
          {"max_workgroup", limits.max_workgroup},
          {"max_groups", limits.max_groups},
          {"subgroup", limits.subgroup},
          {"offset_alignment", limits.offset_alignment},
          {"max_bindings", limits.max_bindings},
          {"max_constant_words", limits.max_constant_words},
          {"max_parameter_bytes", limits.max_parameter_bytes},
          {"min_subgroup", limits.min_subgroup},
          {"max_subgroup", limits.max_subgroup},
          {"matrix_shapes", matrix_names(limits)}};
}

OrderedJson tests_json(const std::vector<SelfTestResult>& tests) {
  OrderedJson rows = OrderedJson::array();
  for (const SelfTestResult& test : tests) {
    OrderedJson row{
        {"op", test.op}, {"variant", test.variant}, {"ok", test.ok}, {"worst_of_tolerance", test.worst}};
    if (!test.problem.empty()) row["problem"] = test.problem;
    rows.push_back(row);
  }
  return rows;
}

void print_device(const hal::DeviceInfo& info, const std::vector<SelfTestResult>& tests,
                  const std::map<std::string, std::string>& self_test_results) {
  const hal::Limits& l = info.limits;
  fmt::print("{}  {}\n", info.id, info.name);
  fmt::print("  driver     {}; {}{}\n", info.driver, info.api, info.is_cpu ? "; runs on the CPU" : "");
  fmt::print("  runs as    {} ({}-like)\n", info.profile.name, hal::to_string(info.profile.kind));
  fmt::print("  limits     memory {}{}, allocation {}, local {}, workgroup {}, subgroup {}\n",
             bytes_text(static_cast<double>(l.memory_bytes)), memory_note(info),
             l.max_allocation_bytes > 0 ? bytes_text(static_cast<double>(l.max_allocation_bytes)) : "any",
             bytes_text(static_cast<double>(l.max_local_bytes)), l.max_workgroup, l.subgroup);
  if (!info.features.empty()) fmt::print("  features   {}\n", hal::join(info.features));
  if (!l.matrix_shapes.empty())
    fmt::print("  matrices   {}, in subgroups of {}\n", hal::join(matrix_names(l)),
               l.max_subgroup > 0 ? fmt::format("{} to {}", l.min_subgroup, l.max_subgroup)
                                  : std::to_string(l.subgroup));
  for (const SelfTestResult& test : tests)
    fmt::print("  self-test  {:<16} {:<16} {}\n", test.op, test.variant,
               test.ok ? fmt::format("ok, {:.3f} of the tolerance", test.worst) : "WRONG: " + test.problem);
  for (const auto& [variant, found] : self_test_results)
    fmt::print("  variant    {:<33} {}\n", variant, found.empty() ? "passed" : "not used: " + found);
}

int list_devices(const Registries& registries, const DevicesOptions& options) {
  const std::string wanted = options.device.substr(0, options.device.find(':'));
  std::optional<hal::DeviceInfo> opened;
  if (!options.device.empty())
    opened = registries.devices.open(options.device)->info();  // throws Error that lists the devices
  if (options.describe) {
    if (!opened) throw Error("--describe", "needs --device, the device to describe", "none");
    fmt::print("{}", hal::describe_device(*opened));
    return 0;
  }
  OrderedJson rows = OrderedJson::array();
  bool all_ok = true;
  for (hal::BackendDevices& backend : registries.devices.enumerate()) {
    if (!wanted.empty() && backend.backend != wanted) continue;
    // A device that has a name and no number is not enumerated.
    if (opened && !opened->computes) backend.devices = {*opened};
    if (backend.devices.empty()) {
      if (options.json)
        rows.push_back({{"backend", backend.backend}, {"none", backend.why_none}});
      else
        fmt::print("{}  none: {}\n\n", backend.backend, backend.why_none);
    }
    for (const hal::DeviceInfo& info : backend.devices) {
      const bool named = options.device.find(':') != std::string::npos;
      if (named && info.id != options.device) continue;
      std::vector<SelfTestResult> tests;
      std::map<std::string, std::string> self_test_results;
      // The null device computes nothing that could be tested.
      if (!options.no_test && info.computes) {
        try {
          const std::unique_ptr<hal::Device> device = registries.devices.open(info.id);
          tests = self_test(*device, registries.catalog);
          self_test_results = device->info().self_test_results;
        } catch (const std::exception& error) {
          tests.push_back({"open", "-", false, 0, error.what()});
        }
      }
      for (const SelfTestResult& test : tests) all_ok &= test.ok;
      if (!options.json) {
        print_device(info, tests, self_test_results);
        fmt::print("\n");
        continue;
      }
      rows.push_back({{"id", info.id},
                      {"backend", info.backend},
                      {"name", info.name},
                      {"vendor", info.vendor},
                      {"driver", info.driver},
                      {"api", info.api},
                      {"is_cpu", info.is_cpu},
                      {"profile", info.profile.name},
                      {"kind", hal::to_string(info.profile.kind)},
                      {"limits", limits_json(info.limits)},
                      {"features", info.features},
                      {"self_test", tests_json(tests)},
                      {"variant_self_tests", self_test_results}});
    }
  }
  if (options.json) fmt::print("{}\n", rows.dump(2));
  return all_ok ? 0 : 1;
}

}  // namespace

void add_devices(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command =
      app.add_subcommand("devices", "List the devices that are found, and test their arithmetic");
  auto options = std::make_shared<DevicesOptions>();
  command->add_option("--device", options->device, "Only this BACKEND or BACKEND:INDEX, or null:NAME");
  command->add_flag(
      "--describe", options->describe,
      "Print the device that --device names as JSON: all that plans depend on. In a file it is a device "
      "of its own on any machine, as null:FILE.json");
  command->add_flag("--no-test", options->no_test, "Skip the self-test");
  command->add_flag("--json", options->json, "Print a JSON list");
  command->footer(
      "Exits with 1 when a device computes wrongly.\nExamples:\n  meshloom devices --device vulkan:0\n"
      "  meshloom devices --device vulkan:0 --describe > mine.json   # then: plan tiny --device "
      "null:mine.json");
  command->callback([=, &action] { action = [=] { return list_devices(registries, *options); }; });
}

}  // namespace meshloom::trainer
