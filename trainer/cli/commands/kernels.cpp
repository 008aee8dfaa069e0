#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "hal/suggest.h"
#include "kernels/core/contract.h"
#include "kernels/program/call_text.h"
#include "trainer/cli/command.h"
#include "trainer/cli/inspect.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct KernelsOptions {
  std::string op, device, as;
  bool json = false;
};

std::string kinds_text(const kernels::Variant& variant) {
  std::string text;
  for (hal::ProfileKind kind : variant.kinds)
    text += (text.empty() ? "" : ", ") + std::string(hal::to_string(kind));
  return text.empty() ? "any" : text;
}

// The case that represents the op: the first that is not slow.
const kernels::Case* sample(const std::vector<kernels::Case>& cases) {
  for (const kernels::Case& test : cases)
    if (!test.slow) return &test;
  return cases.empty() ? nullptr : &cases.front();
}

std::vector<hal::DeviceInfo> targets(const Registries& registries, const KernelsOptions& options) {
  std::vector<hal::DeviceInfo> found;
  if (!options.device.empty()) {
    found.push_back(registries.devices.open(options.device, options.as)->info());
    return found;
  }
  for (const hal::BackendDevices& backend : registries.devices.enumerate())
    for (const hal::DeviceInfo& info : backend.devices) {
      if (!info.computes) continue;
      // The device is opened, because some variants fit only if they passed a self-test on it.
      found.push_back(registries.devices.open(info.id, options.as)->info());
      break;  // devices of a backend share its variants
    }
  return found;
}

int list_kernels(const Registries& registries, const KernelsOptions& options) {
  if (!options.op.empty()) registries.catalog.contract(options.op);  // throws with a suggestion
  if (!options.as.empty()) hal::find_profile(options.as);
  OrderedJson rows = OrderedJson::array();
  const std::vector<hal::DeviceInfo> devices = targets(registries, options);
  for (const kernels::Contract* contract : registries.catalog.contracts()) {
    if (!options.op.empty() && contract->name != options.op) continue;
    const std::vector<kernels::Case> cases = contract->cases();
    const kernels::Case* test = sample(cases);
    if (!options.json)
      fmt::print("{}{}\n", contract->name,
                 contract->view ? "  (a view: no kernel runs)"
                 : test         ? "  for " + kernels::inputs_text(test->inputs, test->attrs)
                                : "");
    if (contract->view) continue;
    std::vector<kernels::TensorType> outputs;
    if (test) outputs = contract->infer(test->inputs, test->attrs);
    for (const hal::DeviceInfo& device : devices)
      for (const kernels::Variant* variant : registries.catalog.variants(contract->name, device.backend)) {
        kernels::Fit fit = kernels::Fit::no("the op has no case to check");
        if (test) fit = variant->answer({contract->name, test->inputs, outputs, test->attrs}, device);
        if (options.json) {
          OrderedJson row{{"op", contract->name},
                          {"device", device.id},
                          {"backend", device.backend},
                          {"profile", device.profile.name},
                          {"variant", variant->name},
                          {"kinds", kinds_text(*variant)},
                          {"serves", variant->serves(device.profile.kind)},
                          {"fits", fit.ok},
                          {"about", variant->about}};
          if (fit.ok)
            row["params"] = fit.params;
          else
            row["reason"] = fit.reason;
          rows.push_back(row);
          continue;
        }
        std::string verdict = fit.ok ? "fits" : "no: " + fit.reason;
        for (const auto& [name, value] : fit.params) verdict += fmt::format(" {}={}", name, value);
        fmt::print("  {:<8} {:<18} {:<10} {}\n", device.backend, variant->name, kinds_text(*variant),
                   verdict);
      }
  }
  if (options.json) fmt::print("{}\n", rows.dump(2));
  return 0;
}

}  // namespace

void add_kernels(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command =
      app.add_subcommand("kernels", "List the variants of all ops, and whether they fit on this machine");
  auto options = std::make_shared<KernelsOptions>();
  command->add_option("--op", options->op, "Only this op");
  command->add_option("--device", options->device, "Only this BACKEND or BACKEND:INDEX");
  command->add_option("--as", options->as, "Check for devices that run as this profile");
  command->add_flag("--json", options->json, "Print a JSON list");
  auto inspect = std::make_shared<InspectOptions>();
  command
      ->add_option("--inspect", inspect->calls,
                   "Compile the kernels that this call would dispatch, run nothing, and print what the "
                   "driver's compiler "
                   "made of them; may be given several times")
      ->type_name("CALL")
      ->allow_extra_args(false);
  command->add_option("--inspect-file", inspect->file, "Inspect the calls of this file, one a line")
      ->type_name("FILE");
  command->add_option("--variant", inspect->variant,
                      "With --inspect: this variant instead of the chosen one");
  command
      ->add_option(
          "--fused", inspect->fused,
          "With --inspect: the kernels of launches that run so many dispatches, 2, 4 or 8, over OpenCL")
      ->check(CLI::IsMember({1, 2, 4, 8}));
  command
      ->add_option("--asm", inspect->folder,
                   "With --inspect: write the driver's assembly, the SPIR-V and the GLSL to files in DIR")
      ->type_name("DIR");
  command->add_flag("--rank", inspect->rank,
                    "With --inspect: every variant that fits with each of its parameters, in the order in "
                    "which `bench tune` tries them");
  command->add_flag("--markdown", inspect->markdown, "With --inspect: print a table for a page");
  std::string families;
  for (const std::string& family : registries.devices.families()) families += " " + family;
  if (!families.empty())
    families =
        "With --inspect, --device also takes a family of GPUs whose compiler is installed:" + families + "\n";
  command->footer(
      "Each variant is checked with the op's first case. The profile kinds that it is made for are listed; "
      "on\n"
      "other kinds it runs only when a rule names it. Variants are listed in the order of preference: of "
      "those\n"
      "that fit, the first that is made for the profile's own kind is taken, else the first made for any.\n"
      "A CALL is an op, perhaps a dtype, and a shape as `meshloom bench --shapes` takes it:\n"
      "'matmul f16 4096x4096x4096:tb', 'flash_attention 1,4096,32,8,128', or what bench prints as a call. Or "
      "it\n"
      "is a compute shader of another project for Vulkan: 'spirv FILE [ID=VALUE ...] [subgroup=N] "
      "[name=NAME]'\n"
      "with the constants of its specialization.\n"
      "Exits with 1 when a call cannot be inspected. docs/inspecting-kernels.md says how to read the "
      "numbers.\n" +
      families +
      "Examples:\n  meshloom kernels --op flash_attention --device cpu --as tpu-v5e\n"
      "  RADV_FORCE_FAMILY=navi21 meshloom kernels --inspect 'matmul 512x512x512'\n"
      "  meshloom kernels --inspect 'matmul 512x512x512' --device opencl:dg2");
  command->callback([=, &action] {
    action = [=] {
      if (inspect->calls.empty() && inspect->file.empty()) {
        if (!inspect->variant.empty() || !inspect->folder.empty() || inspect->markdown || inspect->rank ||
            inspect->fused > 1)
          throw Error("--variant, --asm, --fused, --markdown, --rank", "go with --inspect or --inspect-file",
                      "neither");
        return list_kernels(registries, *options);
      }
      if (options->json && inspect->markdown) throw Error("--json, --markdown", "only one of them", "both");
      if (inspect->rank && (!inspect->variant.empty() || !inspect->folder.empty() || inspect->fused > 1))
        throw Error("--rank", "goes without --variant, --asm and --fused", "both");
      inspect->op = options->op;
      inspect->device = options->device;
      inspect->as = options->as;
      inspect->json = options->json;
      return inspect_kernels(registries, *inspect);
    };
  });
}

}  // namespace meshloom::trainer
