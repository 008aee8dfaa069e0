// Host memory as a device buffer.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "hal/device.h"
#include "hal/host_memory.h"

namespace meshloom::backends::cpu {

constexpr std::int64_t kAlignment = 64;  // bytes, of every buffer: a cache line, and the widest vector

class CpuBuffer : public hal::Buffer {
 public:
  // Throws std::bad_alloc.
  CpuBuffer(std::int64_t bytes, std::string label, hal::MemoryKind kind);
  // Over memory that another device owns.
  CpuBuffer(std::byte* data, std::int64_t bytes, std::string label)
      : Buffer(bytes, std::move(label)), data_(data) {}

  std::byte* data() const { return data_; }

 private:
  CpuBuffer(hal::HostMemory owned, std::int64_t bytes, std::string label, hal::MemoryKind kind);

  hal::HostMemory owned_;
  std::byte* data_;
};

// The address of a binding's bytes. Throws hal::Error when the range leaves the buffer or its offset is not aligned;
// `where` names the command.
std::byte* host_address(const hal::Binding& binding, std::int64_t alignment, const std::string& where);
// `buffer` as a CpuBuffer. Throws hal::Error when it is null or of another backend.
const CpuBuffer& cpu_buffer(const hal::Buffer* buffer, const std::string& where);

}  // namespace meshloom::backends::cpu
