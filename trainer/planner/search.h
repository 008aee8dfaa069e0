// Looks for the mesh, the rematerialisation and the number of micro-batches with the least predicted time of a step.
//
// All factorisations of the ranks over the axes that are built are tried. What does not divide the rows, the layers or the heads,
// and what cannot fit whatever is recomputed, falls out first. A rough estimate ranks the rest; the best of these are composed
// with one layer and with two, a stage's share of the layers is extrapolated from the difference, and the best of those are
// composed in full, a rank for each stage.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/transport/network.h"
#include "kernels/core/catalog.h"
#include "trainer/config/trainer_config.h"
#include "trainer/planner/timeline.h"

namespace meshloom::trainer {

struct FoundMesh {
  std::string mesh, remat;  // "data=2,fsdp=4"; what is recomputed, in words
  std::string options;      // for the command line: "--mesh data=2 --set accumulation=4 ..."
  std::int64_t accumulation = 1;
  StepTime time;
  double mfu = 0;
  std::int64_t peak_bytes = 0;  // of the stage that needs most
};

struct MeshSearch {
  std::vector<FoundMesh> best;               // the fastest first; all fit
  std::map<std::string, std::int64_t> fell;  // why others fell out, and how many
  std::int64_t tried = 0, composed = 0;      // combinations; of them composed with a few layers
};

// `config` is resolved, and its own mesh, remat and accumulation are not regarded. Throws Error for less than two ranks.
MeshSearch search_meshes(const TrainerConfig& config, std::int64_t ranks, const hal::DeviceInfo& device,
                         const kernels::Catalog& catalog, const layers::ClassTable& classes,
                         const hal::Network& network);
std::string search_text(const MeshSearch& search, const std::string& command);

// The plans of one rank of each stage, the first but for the axis seq, along which it is the last: under a causal mask that has
// most to attend to, or as much as any. One where there is no pipeline. `first` is the plan of rank 0, where it is known.
std::vector<Plan> stage_plans(const TrainerConfig& config, const kernels::Catalog& catalog,
                              const hal::DeviceInfo& device, const Plan* first = nullptr);
// The MFU of a step over ranks like these: the FLOPs of the stages' plans, over what their devices could do in this time; 0 = unknown.
double mfu_of(const TrainerConfig& config, const std::vector<const Plan*>& stages, double seconds,
              const hal::DeviceInfo& device);
std::vector<const Plan*> pointers_to(const std::vector<Plan>& plans);

}  // namespace meshloom::trainer
