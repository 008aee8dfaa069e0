// Memory of the host for tensors and what kernels keep beside them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace meshloom::hal {

constexpr std::size_t kHostAlignment = 128;  // at least: two cache lines, which processors fetch together

struct FreeHostMemory {
  void operator()(std::byte* data) const { std::free(data); }
};
using HostMemory = std::unique_ptr<std::byte, FreeHostMemory>;

// Uninitialised. Large pieces lie in huge pages where the system gives them: a matrix's rows then seldom miss the
// translation buffers. Throws std::bad_alloc.
HostMemory host_memory(std::size_t bytes);

}  // namespace meshloom::hal
