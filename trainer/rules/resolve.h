// Resolves a recipe for one piece of hardware: the hardware's name determines backend and profile, then the
// first mesh rule that matches the name edits the recipe, once. Where none of the recipe's own rules matches, a rule of the
// program does (hardware_rule.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "trainer/config/trainer_config.h"
#include "trainer/rules/hardware_rule.h"

namespace meshloom::trainer {

// What a user asked for; "" = not given.
struct HardwareRequest {
  std::string selector;  // see selector.h
  std::string device;    // BACKEND or BACKEND:INDEX
  std::string as;        // a profile's name
  // Paths of fields that the user set, which the program's own rules leave alone.
  std::vector<std::string> fixed;
  // Whether the devices of the selector are the ranks of the run, so that a rule of the program may make a mesh of them.
  bool ranks = false;
};

struct Resolution {
  std::string hardware;              // the name that the rules saw
  int rule = -1;                     // index in mesh_rules, -1 = none matched
  std::string hardware_rule;         // the program's own rule that was applied; "" = none
  std::vector<std::string> changes;  // what each modifier of the rule changed, see apply.h
  std::vector<std::string> notes;    // what a user should know
};

// Sets hardware, device and profile, and applies the rule. A rule of the program leaves alone what the recipe or the user
// chose: a dtype other than f32, remat and kernel rules, and the fields of `fixed`. Without a request, the recipe's own device and
// profile are used, and without these the best device found: a GPU under Vulkan, then one under OpenCL, then
// the CPU. A recipe that was already resolved for the same hardware is not changed. Throws Error for requests
// that contradict each other, an invalid pattern, and a modifier that cannot be applied.
Resolution resolve(TrainerConfig& config, const HardwareRequest& request, const hal::Registry& registry,
                   const layers::ClassTable& classes);

// Opens the device of a resolved recipe, lays its profile over it and limits its memory. Where a part of the
// run may have its place on the host, that is opened beside it. Notes when the product is another than
// the hardware's name says (product.h).
std::unique_ptr<hal::Device> open_device(const TrainerConfig& config, const hal::Registry& registry,
                                         const std::function<void(const std::string&)>& note = {});

// What is wrong with the rules on any hardware: a pattern that no hardware name can match, or one whose
// matches earlier rules always take. `hardware` is a name known to exist. Throws Error on an invalid pattern.
std::vector<std::string> check_mesh_rules(const TrainerConfig& config,
                                          const std::vector<std::string>& backends,
                                          const std::string& hardware);
// Also checks the modifiers of each rule on this recipe: one that cannot be applied, one that changes
// nothing, one whose change a later modifier of the rule undoes, one that names a profile or a variant that is not there.
// Each line begins with the path of what it is about, such as "mesh_rules[0].modifiers[1]".
std::vector<std::string> lint_mesh_rules(const TrainerConfig& config,
                                         const std::vector<std::string>& backends,
                                         const std::string& hardware, const kernels::Catalog& catalog,
                                         const layers::ClassTable& classes);

// What is wrong with rules of the program for this recipe: one that cannot be applied to it, or that names a variant that no
// backend has. Each line begins with the file and the line of it.
std::vector<std::string> lint_hardware_rules(const std::vector<HardwareRule>& rules,
                                             const TrainerConfig& config,
                                             const std::vector<std::string>& backends,
                                             const kernels::Catalog& catalog,
                                             const layers::ClassTable& classes);
// Of those that ship with the program.
std::vector<std::string> lint_hardware_rules(const TrainerConfig& config, const hal::Registry& registry,
                                             const kernels::Catalog& catalog,
                                             const layers::ClassTable& classes);

// Where among the modifiers, which stand at `path`, the profile is set.
std::string place_of_profile(const std::vector<layers::Child<ModifierConfig>>& modifiers,
                             const std::string& path, const std::string& profile);

// Why a kernel rule's variant is none of these backends for an op that it matches; "" = it is one.
std::string unknown_variant(const std::string& op, const std::string& variant,
                            const std::vector<std::string>& backends, const kernels::Catalog& catalog);
// A line for each modifier that names such a variant; `path` says where the modifiers stand.
std::vector<std::string> unknown_variants(const std::vector<layers::Child<ModifierConfig>>& modifiers,
                                          const std::string& path, const std::vector<std::string>& backends,
                                          const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
