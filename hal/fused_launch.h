// Launches of several dispatches of one kernel (ExecutableSpec::fused).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hal/device.h"

namespace meshloom::hal {

// The kernel `one`, for launches of `count` dispatches.
ExecutableSpec fused_spec(const ExecutableSpec& one, std::uint32_t count);

// Puts the arguments of such a launch together.
class FusedLaunch {
 public:
  FusedLaunch(const ExecutableSpec& one, std::uint32_t count) : spec_(fused_spec(one, count)) {}

  // The next dispatch. Those of no workgroups have nothing to run, and come last.
  void add(std::array<std::uint32_t, 3> groups, std::span<const Binding> bindings,
           std::span<const Word> constants);
  // Records the launch, of `count` dispatches that were added, with the device's kernel.
  void record(Device& device, CommandList& into, const std::string& label) const;

 private:
  ExecutableSpec spec_;
  std::vector<Binding> bindings_;
  std::vector<Word> constants_;
  std::uint32_t groups_ = 0;
};

}  // namespace meshloom::hal
