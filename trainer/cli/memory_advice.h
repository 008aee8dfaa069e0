// What makes a run fit that does not: edits of its recipe, each composed again for the memory it then takes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hal/device.h"
#include "trainer/cli/command.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

struct Remedy {
  std::string about;                                         // "nothing but adapters learns"
  std::vector<std::pair<std::string, std::string>> options;  // {"--modify", "Adapt{with=Lora{rank=8}}"}
  std::int64_t peak_bytes = 0;                               // with it
  bool fits = false;

  std::string words() const;  // the options as a shell reads them, each after a space
  std::string text() const;   // "nothing but adapters learns, 12.3 GiB, fits"
};

// For a resolved recipe whose training plan is too large for the device: the edits that make it smaller, the
// smallest peak first; where none suffices alone, several together. Takes as long as composing each of them.
std::vector<Remedy> remedies(const Context& context, const TrainerConfig& config,
                             const hal::DeviceInfo& device);

}  // namespace meshloom::trainer
