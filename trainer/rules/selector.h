// The hardware's name, as mesh rules see it: BACKEND-PROFILE-N or BACKEND-as-PROFILE-N. "vulkan-rx7900xtx-1" is
// one device of that kind under Vulkan, "cpu-as-tpu-v5e-8" eight CPUs that run as TPUs. Both forms choose the
// same backend and profile; "as" only says aloud that the device is something else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

struct Selector {
  std::string backend;
  bool as = false;
  std::string profile;
  std::int64_t devices = 1;
};

std::string to_string(const Selector& selector);
// Throws Error on another form or a backend that is not among `backends`; the profile is not looked up.
Selector parse_selector(std::string_view text, const std::vector<std::string>& backends);

}  // namespace meshloom::trainer
