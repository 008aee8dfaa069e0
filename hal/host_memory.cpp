#include "hal/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace meshloom::hal {

HostMemory host_memory(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const bool huge = bytes >= kHugePage;
  const std::size_t alignment = huge ? kHugePage : kHostAlignment;
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + kHostAlignment - 1) / kHostAlignment * kHostAlignment;
  if (rounded < bytes) throw std::bad_alloc();
  HostMemory memory(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!memory) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // Only for whole huge pages, because a tail would occupy a whole one. It is no error if the system refuses.
  if (huge) static_cast<void>(madvise(memory.get(), rounded / kHugePage * kHugePage, MADV_HUGEPAGE));
#endif
  return memory;
}

}  // namespace meshloom::hal
