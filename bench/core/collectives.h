// Times messages between ranks and collectives made of them, and predicts the latter from the former.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/core/report.h"
#include "hal/transport/transport.h"
#include "kernels/collective/moves.h"

namespace meshloom::bench {

// A link as the model of Hockney sees it, with the gap of LogP: n messages of b bytes in all take
// alpha + (n - 1) gap + b / bandwidth.
struct LinkFit {
  double alpha = 0;      // seconds
  double gap = 0;        // seconds between two messages of one port
  double bandwidth = 0;  // bytes per second; 0 = without limit
};

struct LinkPoint {
  std::int64_t bytes = 0;
  double seconds = 0;  // one way: half a round trip
};

// Alpha and bandwidth by least squares of relative errors over the points, of which there must be two sizes; gap is 0.
// Neither is negative.
LinkFit fit_link(const std::vector<LinkPoint>& points);

// By the port with the most messages and the one with the most bytes. `lists` are those of all ranks; a move to oneself
// takes no time.
double predicted_seconds(const LinkFit& link, std::span<const std::vector<kernels::collective::Move>> lists);

struct CollectiveRow {
  std::string op;
  std::int64_t bytes = 0;  // of each rank's input
  std::int64_t moved = 0;  // bytes out of one rank
  double seconds = 0, predicted = 0;
  bool wrong = false;  // some rank holds other bytes than the reference
};

struct CollectivesReport {
  Header header;
  std::string over;     // "4 threads of one process"
  std::string link;     // the emulated one; "" = as it is
  std::string between;  // whose link was measured: "rank 0 (a) and rank 1 (b)"
  LinkFit fit;
  std::vector<LinkPoint> points;
  std::vector<CollectiveRow> rows;
  bool stopped = false;
};

struct CollectivesOptions {
  std::vector<std::int64_t> sizes;  // bytes of each rank's input
  double seconds = 0.2;             // of samples per row
  double patience = 60;             // seconds until a silent rank is an error
  std::function<bool()> stopped;    // asked on rank 0
  std::function<void(int, int, const std::string&)> progress;
};

// To be called by every rank with equal options; the report of rank 0 is filled. Measures the link between rank 0 and
// the first rank on another host, else rank 1. Throws Error, PeerLost.
void measure_collectives(hal::Transport& transport, const CollectivesOptions& options,
                         CollectivesReport& report);

std::string to_text(const CollectivesReport& report);
std::string to_json(const CollectivesReport& report);

}  // namespace meshloom::bench
