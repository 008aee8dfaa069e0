// Writes all bytes to a file descriptor.
#pragma once

#include <cstddef>
#include <span>

namespace meshloom::hal {

// Continues after short writes and signals. Returns false when writing fails, with the reason in errno.
bool write_all(int fd, std::span<const std::byte> data);

}  // namespace meshloom::hal
