// A plan on a device: its memory is allocated, and every program is recorded once and can be submitted any
// number of times. Programs of the host run on Device::host().
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

class Session {
 public:
  // Allocates exactly plan.peak_bytes, and plan.host.peak_bytes on the host, and records every program. `compiled` is called as
  // kernels are compiled. Throws OutOfMemory, Error.
  Session(hal::Device& device, const kernels::Catalog& catalog, Plan plan,
          const hal::LoadProgress& compiled = {});

  const Plan& plan() const { return plan_; }
  hal::Device& device() { return device_; }
  // Copy a persistent value, by its name; `data` and `into` must have its size, or for one that is stored in 16-bit floats that of
  // f32, from or to which it is converted. A value that is on both sides is written to both and read from the device. Throw Error.
  void write(const std::string& name, std::span<const std::byte> data);
  void read(const std::string& name, std::span<std::byte> data);
  // Submits a program of the plan; returns at once, or when it has finished where it is one of the host. What is copied
  // to the device then may still be on its way. Throws Error.
  void run(Step step);
  void wait() { device_.wait(); }
  // Submits a program, waits for it, and returns the seconds of each of its calls by the device's clock, in
  // order, without views. Throws Error when the device has no timestamps, and for a program of the host.
  std::vector<double> run_timed(Step step);

 private:
  using Buffers = std::vector<std::unique_ptr<hal::Buffer>>;
  // A HostPart with its commands: of the host, and those of the device that copy its results there.
  struct Part {
    int mark;
    std::unique_ptr<hal::CommandList> run, to_device;  // to_device may be nullptr
  };
  Buffers allocate(hal::Device& device, const std::vector<Block>& blocks);
  std::unique_ptr<hal::CommandList> recorded(Step step, bool timed);
  void load_kernels(const hal::LoadProgress& compiled);
  std::unique_ptr<hal::CommandList> recorded_copies(const std::vector<std::string>& names, bool to_host);
  void record_parts(const PlannedProgram& planned);
  void run_parts();
  const Placement* on_device(const std::string& name) const;
  const Placement* on_host(const std::string& name) const;
  hal::Buffer& buffer(const Placement& place) { return *buffers_.at(static_cast<std::size_t>(place.block)); }
  hal::Buffer& host_buffer(const Placement& place) {
    return *host_buffers_.at(static_cast<std::size_t>(place.block));
  }

  hal::Device& device_;
  const kernels::Catalog& catalog_;
  Plan plan_;
  Buffers buffers_, host_buffers_;
  std::map<Step, std::unique_ptr<hal::CommandList>> lists_, timed_lists_;
  std::vector<Part> parts_;                    // of the program of the host
  std::unique_ptr<hal::CommandList> to_host_;  // copies that its last parts need; may be nullptr
};

// Writes the initial values of every parameter for `seed`, and zeros to every other persistent value.
void initialize(Session& session, std::uint64_t seed);

}  // namespace meshloom::trainer
