#include "hal/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

#include "hal/math.h"

namespace meshloom::hal {

HostMemory host_memory(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const bool huge = bytes >= kHugePage;
  const std::size_t alignment = huge ? kHugePage : kHostAlignment;
  if (bytes > std::numeric_limits<std::int64_t>::max() - kHostAlignment) throw std::bad_alloc();
  const auto rounded = static_cast<std::size_t>(
      round_up(std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 1), kHostAlignment));
  // Unlike aligned_alloc, this takes sizes that are no multiples of the alignment.
  void* data = nullptr;
  if (posix_memalign(&data, alignment, rounded) != 0) throw std::bad_alloc();
  HostMemory memory(static_cast<std::byte*>(data));
#ifdef MADV_HUGEPAGE
  // Only for whole huge pages, because a tail would occupy a whole one. It is no error if the system refuses.
  if (huge) static_cast<void>(madvise(memory.get(), rounded / kHugePage * kHugePage, MADV_HUGEPAGE));
#endif
  return memory;
}

}  // namespace meshloom::hal
