// Where a buffer lies.
#pragma once

#include <cstdint>
#include <string_view>

namespace meshloom::hal {

// `device`: what kernels read and write. `host`: memory of the host that the device's copies reach, and that the host
// reaches by its address (Buffer::host_address).
enum class MemoryKind : std::uint8_t { device, host };

constexpr std::string_view to_string(MemoryKind kind) {
  return kind == MemoryKind::device ? "device" : "host";
}

}  // namespace meshloom::hal
