// Times workloads on a device: every requested variant, side by side with a baseline; all results are
// checked.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/core/report.h"
#include "bench/measure/ceilings.h"
#include "bench/measure/measure.h"
#include "bench/measure/workload.h"
#include "trainer/compose/regex.h"

namespace meshloom::bench {

class Peer;

struct RunOptions {
  std::vector<std::string>
      variants;         // names; {} = the selected one; {"all"} = all that fit, without the reference
  std::string against;  // the name of a variant or peer; "" = none
  Buffers buffers = Buffers::warm;
  double seconds = 0.5;                  // per row, and per baseline
  std::optional<trainer::Regex> filter;  // must match a part of "op shape variant"
  std::uint64_t seed = 1;
  std::function<bool()> stopped;  // may be empty
  // Called before each row with the number of rows done, the total, and the name of the row. May be empty.
  std::function<void(int, int, const std::string&)> progress;
};

class Runner {
 public:
  // Measures the ceilings. Throws Error for a variant that no op has, or a peer that is not installed. All
  // arguments must outlive this object.
  Runner(hal::Device& device, const hal::Registry& registry, const kernels::Catalog& catalog,
         RunOptions options);
  ~Runner();

  const Ceilings& ceilings() const { return ceilings_; }
  // Appends to report.rows; sets report.stopped. A variant that throws fails only its row; DeviceLost is
  // passed on.
  void run(const std::vector<Workload>& workloads, Report& report);
  // Measures some rows again, for longer, and keeps the faster result of each. `rows` are indices into
  // report.rows, whose workloads are in `workloads`.
  void measure_again(const std::vector<Workload>& workloads, const std::vector<std::size_t>& rows,
                     Report& report);
  std::string peer_version() const;

 private:
  struct Candidate {
    kernels::Choice choice;
    bool selected;
  };
  std::vector<Candidate> candidates(const Workload& workload, std::vector<std::string>* refusals) const;
  std::vector<Row> measure_workload(const Workload& workload, const std::vector<Candidate>& candidates,
                                    double seconds, const std::function<void(const std::string&)>& before);
  bool stopped() const { return options_.stopped && options_.stopped(); }

  hal::Device& device_;
  const kernels::Catalog& catalog_;
  RunOptions options_;
  Ceilings ceilings_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<Evictor> evictor_;
};

}  // namespace meshloom::bench
