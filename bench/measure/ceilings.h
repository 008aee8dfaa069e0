// The ceilings of a device, which are measured in the same run as the kernels that are compared with them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "hal/registry.h"

namespace meshloom::bench {

struct Ceilings {
  double flops = 0;  // f32 multiply-adds in registers, FLOP/s
  double bytes_per_second =
      0;  // copying a buffer beyond the caches (bytes read + written), or reading it if faster
  double submit_seconds = 0;    // submit and wait of one empty dispatch
  double dispatch_seconds = 0;  // one of many empty dispatches in a command list, with barriers between them
  std::string how;              // how they were measured, in one sentence
  double bf16_flops =
      0;  // products of bf16 with sums in f32, FLOP/s; 0 = the device has no unit that is measured
  // By dtype of products ("f32": also for all other calls), FLOP/s: the rates of calls that exceeded the
  // measured ones, because they use units that no probe measures or because the machine was busy during the
  // probes. No ceiling is lower than these.
  std::map<std::string, double> max_reached;

  // The launch overhead per call in seconds, for a sample of `calls` calls.
  double launch_seconds(int calls) const { return dispatch_seconds + submit_seconds / calls; }
  // The ceiling of a call of `op` on `dtype`, FLOP/s.
  double flops_of(const std::string& op, const std::string& dtype) const;
  // Notes that a call of `op` on `dtype` reached this many FLOP/s. Returns whether the ceiling is higher now.
  bool raise(const std::string& op, const std::string& dtype, double reached);
  // Attainable FLOP/s at this many FLOPs per byte, by the roofline model.
  double roofline(double flops_per_byte) const;
};

// Takes about a second. A device that is the host's processor (lavapipe, PoCL) gets the rates that the cpu
// backend reaches on that processor, if its own driver reaches less.
Ceilings measure_ceilings(hal::Device& device, const hal::Registry& registry);

// The larger of each rate and the smaller of each time, for measurements before and after a run.
Ceilings best(const Ceilings& a, const Ceilings& b);

// Buffers that are larger than this do not fit into any cache of the device: the size of the host's
// last-level cache as the system reports it, or a guess for GPUs.
std::int64_t cache_bytes(const hal::DeviceInfo& device);

// Evicts all data from the caches by writing as much memory as they hold.
class Evictor {
 public:
  explicit Evictor(hal::Device& device);
  void evict();

 private:
  hal::Device& device_;
  std::unique_ptr<hal::Buffer> buffer_;
  std::unique_ptr<hal::CommandList> list_;
};

}  // namespace meshloom::bench
