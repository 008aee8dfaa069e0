// Times train steps over ranks that are threads of this process, over an emulated link, while moves wait and while they overlap.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/core/report.h"
#include "hal/device.h"
#include "hal/transport/link_model.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/exchanges.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::bench {

struct MeshOptions {
  int steps = 5;                       // of each kind, which take turns
  std::optional<hal::LinkModel> link;  // none = one over which moving takes as long as computing
  double patience = 600;
  std::function<bool()> stopped;  // asked on rank 0
  std::function<void(int, int, const std::string&)> progress;
};

struct MeshReport {
  Header header;
  std::string recipe, mesh;
  hal::LinkModel link;
  bool balanced = false;    // the link was chosen so
  std::int64_t tokens = 0;  // of a step
  double computing = 0;     // seconds of a step whose moves take no time but that of copies
  // Seconds of a step as the planner predicts it from that, the link and the plan, before it is run: with moves that wait, and
  // that overlap.
  double predicted_waiting = 0, predicted = 0;
  std::vector<double>
      waiting;  // seconds of a step, of the rank that takes longest: nothing runs while something moves
  std::vector<double> overlapping;                 // each behind the waiting step of the same index
  std::vector<trainer::MovedBytes> planned;        // of a step, by rank
  std::vector<trainer::MovedBytes> moved;          // as the transport counted a step
  std::int64_t peak_bytes = 0, staging_bytes = 0;  // of the rank that takes most
  bool stopped = false;

  bool as_planned() const { return moved == planned; }
  // By how much the predicted time of a step that overlaps differs from the measured one, as a part of this; 0 = not measured.
  double error() const;
};

// `devices` has one for each rank of the config's mesh. Random tokens are trained on. Throws Error, PeerLost.
void measure_mesh(const trainer::TrainerConfig& config,
                  const std::vector<std::unique_ptr<hal::Device>>& devices, const kernels::Catalog& catalog,
                  const MeshOptions& options, MeshReport& report);

std::string to_text(const MeshReport& report);
// A line for each, and the median of the errors.
std::string to_table(const std::vector<MeshReport>& reports);
double median_error(const std::vector<MeshReport>& reports);
std::string to_json(const MeshReport& report);

}  // namespace meshloom::bench
