// The time of a step over a mesh, by simulating the lists of its plan: every call takes its predicted time on the device, moves
// start and end where the pass overlap put them and take turns at the ports of the network, and the stages of a pipeline do
// their actions and wait for each other. One rank stands for all of its stage.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/transport/network.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// What the device of a rank does, or a port of it.
struct Span {
  int stage = 0;
  std::string resource;    // "device", or the name of a level of the network
  std::string name, kind;  // kind: "compute", "memory", "moves", "wait"
  double start = 0, seconds = 0;
};

struct StepTime {
  double seconds = 0;
  int stage = 0;  // the one that ends last
  // What the device of that stage does in the step: "compute" and "memory", by what bounds its calls; waits for moves by the level
  // of the network that these cross; and "bubble", the wait for other stages. They sum to the seconds.
  std::map<std::string, double> path;
  // How long the moves of each level and axes take alone, of that stage: {level, axes}.
  std::map<std::pair<std::string, std::string>, double> moves;
  std::vector<Span> spans;  // where asked for; calls of one layer that follow each other are one
};

// `stages` are the plans of one rank of each stage (search.h, stage_plans()); one where there is no pipeline.
StepTime simulate_step(const std::vector<const Plan*>& stages, const hal::Network& network,
                       const hal::DeviceInfo& device, bool spans = false);

}  // namespace meshloom::trainer
