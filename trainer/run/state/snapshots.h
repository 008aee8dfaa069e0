// What a run continues from, in the host's memory, where it survives the loss of the device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "hal/host_memory.h"
#include "trainer/execute/session.h"
#include "trainer/run/state/divergence_detector.h"
#include "trainer/run/state/run_state.h"

namespace meshloom::trainer {

// Where a run stands after a step, besides its tensors.
struct RunPosition {
  RunState state;
  DivergenceDetector divergence;
  double loss = 0;  // of the last step
};

// Copies of the parameters, the optimizer's and the model's states: of what a step changes, two, so that the newest stays
// whole while the other is read; of frozen parameters, one.
class Snapshots {
 public:
  // The bytes that they take, for a training plan.
  static std::int64_t bytes(const Plan& plan);

  // Throws std::bad_alloc. The plan must outlive it.
  explicit Snapshots(const Plan& plan);

  // Reads what the session holds after a step beside the newest copy. Throws what reading the device throws; the newest copy
  // stays as it is.
  void read(Session& session);
  // Makes what was read last the newest copy.
  void commit(RunPosition position);

  bool has(std::int64_t step) const { return position_ && position_->state.step == step; }
  // None before the first commit().
  const std::optional<RunPosition>& position() const { return position_; }
  // Copies a value of the newest copy.
  void value(const std::string& name, std::span<std::byte> into) const;
  // Writes the newest copy to a new session of the same plan, and zeros to all else.
  void restore(Session& session) const;

 private:
  struct Place {
    std::int64_t offset = 0, bytes = 0;
    bool frozen = false;
  };
  std::span<std::byte> span(const Place& place, int copy) const;

  const Plan& plan_;
  std::map<std::string, Place> places_;
  hal::HostMemory frozen_;
  std::array<hal::HostMemory, 2> copies_;
  bool has_frozen_ = false;  // frozen_ was read
  int newest_ = 0;
  std::optional<RunPosition> position_;
};

}  // namespace meshloom::trainer
