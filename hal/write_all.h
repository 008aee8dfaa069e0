// Writing to a file descriptor until everything is written.
#pragma once

#include <cstddef>
#include <span>

namespace meshloom::hal {

// Goes on after short writes and signals. False where writing failed: errno says why.
bool write_all(int fd, std::span<const std::byte> data);

}  // namespace meshloom::hal
