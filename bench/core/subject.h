// Something that can be timed: a variant on a device, or a peer library on the host.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/core/workload.h"
#include "kernels/core/contract.h"

namespace meshloom::bench {

// How the buffers stand between two calls.
enum class Buffers : std::uint8_t {
  warm,      // the same ones again and again: what fits the caches stays there
  rotating,  // as many sets in turn as exceed the caches: every call finds its data in memory
  cold,      // the same ones, and the caches filled with something else before each call
};
std::string_view to_string(Buffers buffers);

class Subject {
 public:
  virtual ~Subject() = default;
  // Makes a sample of `calls` calls, one after the other, over the sets in turn.
  virtual void prepare(int calls) = 0;
  // Runs the sample; returns when it has finished. Outputs hold NaN (integers: a pattern) before the first.
  virtual void run() = 0;
  // Before and after a stretch of samples, untimed: threads are claimed and given back.
  virtual void enter() {}
  virtual void leave() {}
  // Whether its threads spin for a while after run(): what is timed next waits until they sleep.
  virtual bool brings_threads() const { return false; }
  virtual int sets() const = 0;
  virtual std::vector<kernels::HostTensor> outputs(int set) = 0;
};

// Throws Error, OutOfMemory. All arguments must outlive it.
std::unique_ptr<Subject> device_subject(hal::Device& device, const Workload& workload,
                                        const kernels::Choice& choice,
                                        const std::vector<kernels::HostTensor>& inputs, int sets);

// Random inputs by the contract; those that belong to each other are made by the device where the reference
// would take long (o and lse of an attention's gradient).
std::vector<kernels::HostTensor> make_inputs(hal::Device& device, const kernels::Catalog& catalog,
                                             const Workload& workload, std::uint64_t seed);

// Fills `tensor` with what no kernel writes.
void poison(kernels::HostTensor& tensor);

// Bytes of one set of buffers, and how many sets exceed caches of `cache_bytes` (at least 2, at most 64,
// within the device's memory).
std::int64_t set_bytes(const Workload& workload, std::int64_t workspace);
int rotating_sets(std::int64_t set_bytes, std::int64_t cache_bytes, std::int64_t memory_bytes);

}  // namespace meshloom::bench
