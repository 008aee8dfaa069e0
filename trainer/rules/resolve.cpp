#include "trainer/rules/resolve.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/compose/regex.h"
#include "trainer/compose/tuning/tuning.h"
#include "trainer/config/mesh_modifiers.h"
#include "trainer/rules/apply.h"
#include "trainer/rules/hardware_rule.h"
#include "trainer/rules/place.h"
#include "trainer/rules/product.h"
#include "trainer/rules/selector.h"

namespace meshloom::trainer {
namespace {

constexpr const char* kHost = "cpu";  // the backend of the host's processor

std::string backend_of(const std::string& device) { return device.substr(0, device.find(':')); }

// What makes one device better than another where nothing names one, in this order: a GPU; among GPUs, a matrix unit; among
// drivers of the processor, the backend made for it.
auto capability(const hal::DeviceInfo& device) {
  return std::tuple(!device.is_cpu, !device.limits.matrix_shapes.empty(), !poses_as_gpu(device));
}

// The most capable device found; of equals the first.
std::string best_device(const hal::Registry& registry) {
  std::optional<hal::DeviceInfo> best;
  for (const hal::BackendDevices& found : registry.enumerate())
    for (const hal::DeviceInfo& device : found.devices)
      if (device.computes && (!best || capability(device) > capability(*best))) best = device;
  if (!best)
    throw Error("device", "at least one must be found; see `meshloom devices` for what each backend needs",
                "none");
  return best->id;
}

bool is_shipped(const std::string& profile) {
  for (const hal::Profile& shipped : hal::shipped_profiles())
    if (shipped.name == profile) return true;
  return false;
}

// Throws Error unless the profile is a shipped one or the device's own.
void check_profile(const std::string& device, const std::string& profile, const hal::Registry& registry) {
  if (is_shipped(profile)) return;
  if (registry.open(device)->profile().name != profile) hal::find_profile(profile);  // throws
}

// What the program's rules need to know of the hardware of a recipe that is being resolved.
HardwareFacts facts_of_recipe(const TrainerConfig& config, const hal::Registry& registry) {
  if (!config.profile.empty() && is_shipped(config.profile))
    return facts_of(hal::find_profile(config.profile));
  return facts_of(registry.open(config.device)->info());
}

// Puts back what `before` says at these paths. Returns the paths that had changed.
std::vector<std::string> restore(TrainerConfig& config, const TrainerConfig& before,
                                 const std::vector<std::string>& paths, const layers::ClassTable& classes) {
  std::vector<std::string> restored;
  for (const std::string& path : paths) {
    const std::string value = layers::get(before, path);
    if (layers::get(config, path) == value) continue;
    layers::set(config, path, value, classes);
    restored.push_back(path);
  }
  return restored;
}

// Whether no kernel rule names a variant, but what was measured on the device.
bool only_measured(const TrainerConfig& config) {
  return std::all_of(config.kernels.begin(), config.kernels.end(),
                     [](const auto& rule) { return rule->variant.get() == kMeasuredVariant; });
}

// Applies the program's own rule for the hardware, if there is one.
void apply_hardware_rule(TrainerConfig& config, const HardwareRequest& request, const hal::Registry& registry,
                         const layers::ClassTable& classes, Resolution& result) {
  if (!config.hardware_rules) return;
  const std::optional<HardwareRule> rule =
      find_hardware_rule(shipped_hardware_rules(classes), facts_of_recipe(config, registry));
  if (!rule) {
    result.notes.push_back("hardware '" + result.hardware +
                           "' matches no rule of the program: the recipe runs as it is");
    return;
  }
  const TrainerConfig before = config;
  result.hardware_rule = rule->name;
  std::vector<layers::Child<ModifierConfig>> modifiers = rule->config.modifiers;
  if (!request.ranks || before.mesh->size() > 1)
    std::erase_if(modifiers, [](const auto& one) { return one.template as<MeshModifier>() != nullptr; });
  try {
    result.changes = apply_modifiers(config, modifiers, "modifiers", classes).changes;
  } catch (const Error& error) {
    throw Error(located(rule->file, rule->lines, error.where()), error.rule(), error.found());
  }
  std::vector<std::string> chosen;
  if (before.dtype != TrainerConfig{}.dtype) chosen.push_back("dtype");
  if (!before.remat.empty()) chosen.push_back("remat");
  if (!before.kernels.empty()) chosen.push_back("kernels");
  restore(config, before, chosen, classes);
  for (const std::string& path : restore(config, before, request.fixed, classes))
    result.notes.push_back("hardware rule '" + rule->name + "': " + path + " stays " +
                           layers::get(config, path) + ", as it was given");
  std::string changed;
  for (const char* path : {"dtype", "remat", "kernels", "accumulation", "offload_optimizer"}) {
    if (path == std::string("kernels") && only_measured(config))
      continue;  // the plan says which calls that changes
    if (const std::string value = layers::get(config, path); value != layers::get(before, path))
      changed += (changed.empty() ? "" : ", ") + std::string(path) + " = " + value;
  }
  if (const std::string mesh = Topology(config.mesh->axes()).text();
      mesh != Topology(before.mesh->axes()).text())
    changed += (changed.empty() ? "mesh " : ", mesh ") + mesh;
  if (!changed.empty())
    result.notes.push_back("hardware rule '" + rule->name + "' sets " + changed +
                           "; --set hardware_rules=false leaves the recipe as it is");
}

void choose_hardware(TrainerConfig& config, const HardwareRequest& request, const hal::Registry& registry,
                     Resolution& result) {
  if (!request.selector.empty()) {
    const Selector selector = parse_selector(request.selector, registry.backends());
    const std::string where = "selector '" + request.selector + "'";
    if (!request.as.empty() && request.as != selector.profile)
      throw Error(where, "--as must name the same profile", "'" + request.as + "'");
    if (!request.device.empty() && backend_of(request.device) != selector.backend)
      throw Error(where, "--device must name the same backend", "'" + request.device + "'");
    const bool same_backend = !config.device.empty() && backend_of(config.device) == selector.backend;
    if (!request.device.empty())
      config.device = request.device;
    else if (!same_backend)
      config.device = selector.backend;
    check_profile(config.device, selector.profile, registry);
    config.profile = selector.profile;
    result.hardware = to_string(selector);
    if (selector.devices > 1 && !request.ranks)
      result.notes.push_back(where + ": names " + std::to_string(selector.devices) +
                             " devices to the mesh rules; this run uses one of them");
    return;
  }
  if (!request.device.empty()) {
    // The profile of the recipe was chosen for its own device and does not apply to another.
    if (request.device != config.device && request.as.empty()) config.profile.clear();
    config.device = request.device;
  }
  if (!request.as.empty()) config.profile = request.as;
  if (config.device.empty()) config.device = best_device(registry);
  Selector name{backend_of(config.device), !config.profile.empty(), config.profile, 1};
  if (name.as) {
    check_profile(config.device, config.profile, registry);
  } else {
    name.profile = registry.open(config.device)->profile().name;
  }
  result.hardware = to_string(name);
}

// The host's processor beside a device. Its rates are those of a shipped profile, because measured ones differ from process to
// process, and a plan does not.
std::unique_ptr<hal::Device> open_host(const hal::Registry& registry) {
  std::unique_ptr<hal::Device> host = registry.open(kHost);
  const hal::Profile& shipped = hal::find_profile("host-cpu");
  hal::Profile profile = host->profile();
  profile.memory_bytes_per_second = shipped.memory_bytes_per_second;
  profile.peak_flops = shipped.peak_flops;
  host->run_as(profile);
  return host;
}

}  // namespace

Resolution resolve(TrainerConfig& config, const HardwareRequest& request, const hal::Registry& registry,
                   const layers::ClassTable& classes) {
  Resolution result;
  const bool asked = !request.selector.empty() || !request.device.empty() || !request.as.empty();
  if (!config.hardware.empty() && !asked) {
    result.hardware = config.hardware;
    return result;
  }
  choose_hardware(config, request, registry, result);
  if (config.hardware == result.hardware) return result;
  if (!config.hardware.empty())
    result.notes.push_back("hardware: the recipe was resolved for '" + config.hardware +
                           "' before and is now for '" + result.hardware +
                           "'; the edits of the rules that matched then stay");
  for (std::string& note : check_mesh_rules(config, registry.backends(), result.hardware))
    result.notes.push_back(std::move(note));
  config.hardware = result.hardware;
  for (std::size_t i = 0; i < config.mesh_rules.size(); ++i) {
    // A copy, because a modifier may edit the list of rules itself.
    const MeshRuleConfig rule = *config.mesh_rules[i];
    if (!Regex(rule.pattern.get(), "mesh_rules[" + std::to_string(i) + "].pattern").matches(result.hardware))
      continue;
    result.rule = static_cast<int>(i);
    const std::string device = config.device, profile = config.profile;
    Applied applied =
        apply_modifiers(config, rule.modifiers, "mesh_rules[" + std::to_string(i) + "].modifiers", classes);
    result.changes = std::move(applied.changes);
    result.notes.insert(result.notes.end(), applied.no_ops.begin(), applied.no_ops.end());
    if (!request.device.empty() && config.device != device)
      throw Error("mesh_rules[" + std::to_string(i) + "]",
                  "sets the device to '" + config.device + "' against --device", "'" + device + "'");
    if (!request.as.empty() && config.profile != profile)
      throw Error("mesh_rules[" + std::to_string(i) + "]",
                  "sets the profile to '" + config.profile + "' against --as", "'" + profile + "'");
    if (!config.profile.empty() && config.profile != profile) try {
        check_profile(config.device, config.profile, registry);
      } catch (const Error& error) {
        throw Error(place_of_profile(rule.modifiers, "mesh_rules[" + std::to_string(i) + "].modifiers",
                                     config.profile),
                    "must name a profile", error.what());
      }
    break;
  }
  if (result.rule < 0 && !config.mesh_rules.empty())
    result.notes.push_back("hardware '" + result.hardware + "' matches none of the recipe's " +
                           std::to_string(config.mesh_rules.size()) + " mesh rules: none is applied");
  if (result.rule < 0) apply_hardware_rule(config, request, registry, classes, result);
  return result;
}

std::unique_ptr<hal::Device> open_device(const TrainerConfig& config, const hal::Registry& registry,
                                         const std::function<void(const std::string&)>& note) {
  std::unique_ptr<hal::Device> device = registry.open(config.device);
  if (const std::string said = product_note(config.hardware, device->info()); note && !said.empty())
    note(said);
  if (!config.profile.empty() && config.profile != device->profile().name)
    device->run_as(hal::find_profile(config.profile));
  if (config.memory > 0) device->limit_memory(config.memory);
  if ((config.fit || config.offload_optimizer) && device->info().backend != kHost)
    device->set_host(open_host(registry));
  return device;
}

}  // namespace meshloom::trainer
