// From a recipe to the tree for one piece of hardware: the hardware's name picks backend and profile, then the
// first mesh rule that matches it edits the tree, once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/registry.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

// What a user asked for; empty = not said.
struct HardwareRequest {
  std::string selector;  // see selector.h
  std::string device;    // BACKEND or BACKEND:INDEX
  std::string as;        // a profile's name
};

struct Resolution {
  std::string hardware;              // the name the rules saw
  int rule = -1;                     // index in mesh_rules, -1 = none matched
  std::vector<std::string> changes;  // what each modifier of the rule changed, see apply.h
  std::vector<std::string> notes;    // what a user should be told
};

// Sets hardware, device and profile, and applies the rule. Without a request the tree's own device and profile
// count, and without those the best device found: a GPU under Vulkan, one under OpenCL, the CPU. A tree that was
// resolved for the same hardware before is left as it is. Throws Error for requests that contradict each other,
// an invalid pattern, and a modifier that cannot be applied.
Resolution resolve(TrainerConfig& config, const HardwareRequest& request, const hal::Registry& registry,
                   const layers::ClassTable& classes);

// The device of a resolved tree, running as its profile. `note` is told of a product that is not what the hardware's
// name says (product.h).
std::unique_ptr<hal::Device> open_device(const TrainerConfig& config, const hal::Registry& registry,
                                         const std::function<void(const std::string&)>& note = {});

// What is wrong with the rules whatever the hardware: a pattern that no hardware name can match, or one that
// earlier rules always win over. `hardware` is a name known to exist. Throws Error on an invalid pattern.
std::vector<std::string> check_mesh_rules(const TrainerConfig& config,
                                          const std::vector<std::string>& backends,
                                          const std::string& hardware);
// The same, and what is wrong with the modifiers of each rule when it edits this very tree: one that cannot
// be applied, one that changes nothing, one whose change a later one of the rule undoes.
std::vector<std::string> lint_mesh_rules(const TrainerConfig& config,
                                         const std::vector<std::string>& backends,
                                         const std::string& hardware, const layers::ClassTable& classes);

}  // namespace meshloom::trainer
