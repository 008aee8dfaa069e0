// Something that is timed: a variant on a device, or a peer library on the host.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure/workload.h"
#include "kernels/core/contract.h"

namespace meshloom::bench {

// Which buffers successive calls use.
enum class Buffers : std::uint8_t {
  warm,      // the same buffers for every call: data that fits into the caches stays there
  rotating,  // so many sets in turn that they exceed the caches: every call reads its data from memory
  cold,      // the same buffers, but the caches are evicted before each call
};
std::string_view to_string(Buffers buffers);

class Subject {
 public:
  virtual ~Subject() = default;
  // Prepares a sample of `calls` calls, one after the other, which use the sets in turn.
  virtual void prepare(int calls) = 0;
  // Runs the sample and waits for it. Before the first run outputs are NaN (integers: a pattern).
  virtual void run() = 0;
  // Called before and after a series of samples, untimed: threads are acquired and released.
  virtual void enter() {}
  virtual void leave() {}
  // Whether it has threads that spin for a while after run(); they must sleep before anything else is timed.
  virtual bool has_own_threads() const { return false; }
  // Whether it runs on a GPU.
  virtual bool is_gpu() const { return false; }
  virtual int sets() const = 0;
  virtual std::vector<kernels::HostTensor> outputs(int set) = 0;
};

// Throws Error, OutOfMemory. All arguments must outlive it.
std::unique_ptr<Subject> device_subject(hal::Device& device, const Workload& workload,
                                        const kernels::Choice& choice,
                                        const std::vector<kernels::HostTensor>& inputs, int sets);

// Random inputs from the contract. Inputs that depend on others (o and lse of an attention's gradient) are
// computed on the device when the reference would take long.
std::vector<kernels::HostTensor> make_inputs(hal::Device& device, const kernels::Catalog& catalog,
                                             const Workload& workload, std::uint64_t seed);

// Fills `tensor` with values that no kernel writes.
void poison(kernels::HostTensor& tensor);

// The bytes of one set of buffers, and how many sets exceed caches of `cache_bytes` (between 2 and 64, within
// the device's memory).
std::int64_t set_bytes(const Workload& workload, std::int64_t workspace);
int rotating_sets(std::int64_t set_bytes, std::int64_t cache_bytes, std::int64_t memory_bytes);

}  // namespace meshloom::bench
