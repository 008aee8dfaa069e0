// Runs independent dispatches of one kernel as one launch: horizontal fusion, as XLA has it, of commands. A launch takes a driver of
// OpenCL about ten microseconds, longer than small kernels run: projections to queries, keys and values, the updates of all
// parameters and their casts are one launch for up to eight of them. Each dispatch computes what it would alone, to the bit.
#pragma once

#include <vector>

#include "trainer/execute/reordered_commands.h"

namespace meshloom::trainer {

// Whether launches of several dispatches are worth it: a GPU's driver of OpenCL that computes rightly with them. PoCL runs as many tokens per second with them as without.
// MESHLOOM_HORIZONTAL_FUSION decides otherwise where the device can.
bool fuses_dispatches(const hal::DeviceInfo& device);

// Dispatches may come later, up to the first command that waits for one of those that share the launch, or earlier, to fill it.
class HorizontalFusion : public ReorderedCommands {
 public:
  using ReorderedCommands::ReorderedCommands;

 private:
  // Dispatches of one kernel that wait for others of it. None of those that wait depends on another.
  using Launch = std::vector<std::size_t>;

  void schedule() override;
  // Whether the command is a dispatch that may share a launch.
  bool shares(std::size_t i) const { return max_fused_[i] > 1; }
  bool same_kernel(std::size_t i, std::size_t k) const;
  std::size_t room(const Launch& launch) const { return max_fused_[launch.front()] - launch.size(); }
  // Adds later dispatches of the kernel, from command `next` on, that depend on none that has not run.
  void add_later(Launch& launch, std::size_t next) const;
  void run(Launch launch, std::size_t next);
  void run_waiting(std::size_t next);
  void record_launch(const Launch& launch);
  void record_fused(const Launch& launch);

  std::vector<char> ran_;  // by command
  std::vector<std::size_t>
      max_fused_;  // by command, the dispatches of its kernel that a launch may run; 1 = it runs alone
  std::vector<Launch> waiting_;
};

}  // namespace meshloom::trainer
