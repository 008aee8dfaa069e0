// Times workloads on a device: every variant asked for, each result checked, each side by side with a
// yardstick.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/core/ceilings.h"
#include "bench/core/measure.h"
#include "bench/core/report.h"
#include "bench/core/workload.h"
#include "trainer/compose/regex.h"

namespace meshloom::bench {

class Peer;

struct RunOptions {
  std::vector<std::string>
      variants;         // names; {} = the selected one; {"all"} = all that fit but the reference
  std::string against;  // a variant's or a peer's name; "" = none
  Buffers buffers = Buffers::warm;
  double seconds = 0.5;                  // per row and side
  std::optional<trainer::Regex> filter;  // a part of "op shape variant" matches
  std::uint64_t seed = 1;
  std::function<bool()> stopped;  // may be empty
  // Before each row: how many rows are done, of how many, and what comes. May be empty.
  std::function<void(int, int, const std::string&)> progress;
};

class Runner {
 public:
  // Measures the ceilings. Throws Error on a variant that no op has, or an absent peer. All must outlive it.
  Runner(hal::Device& device, const hal::Registry& registry, const kernels::Catalog& catalog,
         RunOptions options);
  ~Runner();

  const Ceilings& ceilings() const { return ceilings_; }
  // Appends to report.rows; sets stopped. A variant that throws costs its row only; DeviceLost is passed on.
  void run(const std::vector<Workload>& workloads, Report& report);
  // Measures these rows again, for longer, and keeps the faster result of each. Indices into report.rows,
  // whose workloads are among `workloads`.
  void again(const std::vector<Workload>& workloads, const std::vector<std::size_t>& rows, Report& report);
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
