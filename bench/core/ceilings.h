// What the device can do at most, measured in the same run as what is compared to it.
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
      0;                      // copy of a buffer beyond the caches (read + written), or reading one if faster
  double submit_seconds = 0;  // submit + wait of one empty dispatch
  double dispatch_seconds = 0;  // one of many empty dispatches in a list, with barriers between them
  std::string how;              // one sentence
  double bf16_flops = 0;  // products of bf16 with sums of f32, FLOP/s; 0: the device has no unit for them
                          // that is measured
  // By dtype of products ("f32": of all other calls too), FLOP/s: what calls reached above the measured rates, by units
  // that no probe measures or because the probes met a busy machine. Nothing is held to less than was reached.
  std::map<std::string, double> max_reached;

  // Seconds that a sample of `calls` calls spends on being started, per call.
  double launch_seconds(int calls) const { return dispatch_seconds + submit_seconds / calls; }
  // What a call of `op` on `dtype` is held to, FLOP/s.
  double flops_of(const std::string& op, const std::string& dtype) const;
  // A call of `op` on `dtype` reached this many FLOP/s; says whether the ceiling is higher now.
  bool raise(const std::string& op, const std::string& dtype, double reached);
  // Attainable FLOP/s at this many FLOPs per byte.
  double roof(double flops_per_byte) const;
};

// About a second. A device that is the host's processor (lavapipe, PoCL) is held to what the cpu backend
// reaches on that processor where its own driver reaches less.
Ceilings measure_ceilings(hal::Device& device, const hal::Registry& registry);

// The larger of each rate and the shorter of each time: of measurements before and after a run.
Ceilings best(const Ceilings& a, const Ceilings& b);

// Bytes beyond which no cache of the device holds a buffer: the host's last level as the system reports it,
// or a guess for GPUs.
std::int64_t cache_bytes(const hal::DeviceInfo& device);

// Writes over as much memory as the caches hold.
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
