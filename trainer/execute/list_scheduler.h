// Puts commands that do not wait for each other between the same barriers, by list scheduling as compilers have it for instructions. A
// GPU under Vulkan runs such dispatches side by side, where a barrier has it run empty and begin anew, which takes about as long
// as the smallest kernels run: 2.1 microseconds with an empty kernel on an H200.
#pragma once

#include "trainer/execute/reordered_commands.h"

namespace meshloom::trainer {

// Whether the device runs dispatches between two barriers side by side. MESHLOOM_LIST_SCHEDULING=0 says no.
bool overlaps_dispatches(const hal::DeviceInfo& device);

// A command comes behind the first barrier at which nothing that it waits for is left, as far as it does not come too long before its place.
class ListScheduler : public ReorderedCommands {
 public:
  using ReorderedCommands::ReorderedCommands;

 private:
  void schedule() override;
};

}  // namespace meshloom::trainer
