// Finds edits of a recipe that make a run fit into memory, by composing the edited recipes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hal/device.h"
#include "trainer/cli/command.h"
#include "trainer/config/trainer_config.h"
#include "trainer/rules/fit.h"

namespace meshloom::trainer {

struct MemorySuggestion {
  std::string about;                                         // "only adapters are trained"
  std::vector<std::pair<std::string, std::string>> options;  // {"--modify", "Adapt{with=Lora{rank=8}}"}
  std::int64_t peak_bytes = 0;                               // after the edit
  bool fits = false;

  std::string shell_arguments() const;  // the options for a shell, with a space before each
  std::string text() const;             // "only adapters are trained, 12.3 GiB, fits"
};

// For a resolved recipe whose training plan is too large for the device, also after it was edited to fit (rules/fit.h) where it
// asks for that: the edits that need less memory. Those that suffice come first, and each group in the order adapters, bits
// of the weights, optimizer, offload, sequence; if none suffices alone, several together come first. Composes every edit.
std::vector<MemorySuggestion> suggest_less_memory(const Registries& registries, const TrainerConfig& config,
                                                  const hal::DeviceInfo& device,
                                                  const ComposeRun& compose = {});

}  // namespace meshloom::trainer
