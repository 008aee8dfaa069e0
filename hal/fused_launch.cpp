#include "hal/fused_launch.h"

namespace meshloom::hal {

ExecutableSpec fused_spec(const ExecutableSpec& one, std::uint32_t count) {
  ExecutableSpec spec = one;
  spec.fused = count;
  spec.constant_words = count * (one.constant_words + kFusedWords);
  for (std::uint32_t i = 1; i < count; ++i)
    spec.bindings.insert(spec.bindings.end(), one.bindings.begin(), one.bindings.end());
  return spec;
}

void FusedLaunch::add(std::array<std::uint32_t, 3> groups, std::span<const Binding> bindings,
                      std::span<const Word> constants) {
  const std::uint32_t count = groups[0] * groups[1] * groups[2];
  bindings_.insert(bindings_.end(), bindings.begin(), bindings.end());
  constants_.insert(constants_.end(), constants.begin(), constants.end());
  constants_.push_back(word(std::int64_t{count > 0 ? static_cast<std::int32_t>(groups_) : kNoWorkgroup}));
  // A workgroup's place is found by dividing.
  for (const std::uint32_t along : groups) constants_.push_back(word(std::int64_t{count > 0 ? along : 1}));
  groups_ += count;
}

void FusedLaunch::record(Device& device, CommandList& into, const std::string& label) const {
  into.dispatch(device.load(spec_), {groups_, 1, 1}, bindings_, constants_, label);
}

}  // namespace meshloom::hal
