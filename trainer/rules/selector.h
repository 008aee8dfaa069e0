// The hardware's name, as mesh rules see it: BACKEND-PROFILE-N or BACKEND-as-PROFILE-N. "vulkan-rx7900xtx-1"
// means one such device under Vulkan, "cpu-as-tpu-v5e-8" eight CPUs that run as TPUs. Both forms select the
// same backend and profile; "as" makes explicit that the device is another product.
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
// Throws Error on any other form and on a backend that is not in `backends`. Does not check that the profile
// exists.
Selector parse_selector(std::string_view text, const std::vector<std::string>& backends);

}  // namespace meshloom::trainer
