#include "kernels/core/variant.h"

#include <algorithm>

namespace meshloom::kernels {

std::string Variant::key() const { return op + " " + name; }

Fit Variant::trusted_fit(const CallView& call, const hal::DeviceInfo& target) const {
  Fit answer = fit(call, target);
  if (!needs_self_test || !answer.ok) return answer;
  const auto result = target.self_test_results.find(key());
  if (result == target.self_test_results.end())
    // A plan for a device that is not present trusts its driver, unless the device said otherwise.
    return !target.computes ? answer
           : experimental
               ? Fit::no("is experimental; MESHLOOM_EXPERIMENTAL_KERNELS=1 has it tested on this device")
               : Fit::no("has not passed its self-test on this device");
  if (!result->second.empty()) return Fit::no("failed its self-test with this driver: " + result->second);
  return answer;
}

bool Variant::serves(hal::ProfileKind kind) const {
  return kinds.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace meshloom::kernels
