// Host memory for tensors and the work space of kernels.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace meshloom::hal {

constexpr std::size_t kHostAlignment = 128;  // a minimum: two cache lines, which processors fetch together

struct FreeHostMemory {
  void operator()(std::byte* data) const { std::free(data); }
};
using HostMemory = std::unique_ptr<std::byte, FreeHostMemory>;

// Allocates uninitialized memory. Large allocations use huge pages if the system provides them, so that
// walking the rows of a matrix seldom misses the TLB. Throws std::bad_alloc.
HostMemory host_memory(std::size_t bytes);

}  // namespace meshloom::hal
