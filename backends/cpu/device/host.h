// Facts about this machine from the operating system and the processor, and two short measurements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backends/cpu/device/thread_pool.h"
#include "hal/profile.h"

namespace meshloom::backends::cpu {

struct Host {
  std::string name, vendor;       // from /proc/cpuinfo
  std::string target;             // vector instructions in use: "AVX2"
  int threads = 1;                // hardware threads this process may use: affinity mask and cgroup quota
  int lanes = 4;                  // f32 elements of a vector
  std::int64_t memory_bytes = 0;  // physical memory, or the cgroup's limit where that is smaller
  std::int64_t l2_bytes = 0, l3_bytes = 0;  // of the caches that one core uses; 0 = unknown
};
Host probe_host();

// The number of workers: the environment variable MESHLOOM_THREADS, or else Host::threads. Throws hal::Error when the
// variable is not a number from 1 to max(16, 4 * Host::threads), and no share of Host::threads such as 1/4.
int wanted_workers(const Host& host);

// The sustained f32 multiply-add rate (FLOP/s) and the memory read rate (bytes/s) of all workers together: the best of
// a few trials of some milliseconds each. `cores`: the number of workers that can run at once.
double measure_flops(ThreadPool& pool, int cores);
double measure_read_bandwidth(ThreadPool& pool, std::int64_t l3_bytes);

// What the environment variable MESHLOOM_CPU_RATES says instead of the measurements: the f32 FLOP/s of one core and the
// bytes/s that all cores read. Throws hal::Error when it is not two positive numbers.
struct CpuRates {
  double core_flops = 0, bytes_per_second = 0;
};
std::optional<CpuRates> given_rates();

// The profile "host-cpu" of this machine; Profile::sources says where every number comes from.
hal::Profile host_profile(const Host& host, int workers, double flops, double bytes_per_second,
                          bool is_measured);

}  // namespace meshloom::backends::cpu
