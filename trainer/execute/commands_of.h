// What a program gives a device to do, found without the device: the kernels that it loads, and the submissions that its
// commands are cut into.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/submission.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

struct ProgramCommands {
  std::vector<hal::ExecutableSpec> kernels;  // each once, in the order of their first use
  hal::ListCosts costs;                      // of the commands, as a device has them before it has measured
  std::vector<std::string> labels;           // of the commands
  std::int64_t launches = 0;                 // the commands that are kernels
  std::int64_t barriers = 0;                 // between them
};

// Records one call as `choice` runs it on tensors of its own, which are allocated into `buffers`; updates of state are in place.
void record_call(const kernels::CallView& call, const kernels::Choice& choice, hal::Device& device,
                 hal::CommandList& list, std::vector<std::unique_ptr<hal::Buffer>>& buffers,
                 const std::string& label);

// The kernels of one call run by `choice`, each once.
std::vector<hal::ExecutableSpec> kernels_of(const kernels::CallView& call, const kernels::Choice& choice,
                                            const hal::DeviceInfo& device);

// `blocks` are those of the plan where the program runs, `device` the one that it was composed for.
ProgramCommands commands_of(const PlannedProgram& planned, const kernels::Catalog& catalog,
                            const std::vector<Block>& blocks, const hal::DeviceInfo& device);

// The submissions of one update, but for what runs on the host.
struct SubmissionSummary {
  std::int64_t count = 0;
  std::int64_t launches = 0;  // of kernels
  std::int64_t barriers = 0;  // between commands
  double longest = 0;         // predicted seconds
  std::string longest_label;  // its first command
  double budget = 0;          // 0 = the lists are not cut
};
SubmissionSummary submissions_of(const Plan& plan, const kernels::Catalog& catalog,
                                 const hal::DeviceInfo& device, const hal::SubmissionSettings& settings);

// Whether the device takes its work in submissions, and a driver compiles its kernels.
bool has_submissions(const hal::DeviceInfo& device);

}  // namespace meshloom::trainer
