#include "backends/cpu/device/memory.h"

#include <utility>

#include "hal/bounds.h"

namespace meshloom::backends::cpu {

CpuBuffer::CpuBuffer(std::int64_t bytes, std::string label, hal::MemoryKind kind)
    : CpuBuffer(hal::host_memory(static_cast<std::size_t>(bytes)), bytes, std::move(label), kind) {}

CpuBuffer::CpuBuffer(hal::HostMemory owned, std::int64_t bytes, std::string label, hal::MemoryKind kind)
    : Buffer(bytes, std::move(label), kind == hal::MemoryKind::host ? owned.get() : nullptr),
      owned_(std::move(owned)),
      data_(owned_.get()) {}

const CpuBuffer& cpu_buffer(const hal::Buffer* buffer, const std::string& where) {
  const auto* own = dynamic_cast<const CpuBuffer*>(buffer);
  if (own == nullptr)
    throw Error(where, "a buffer must be allocated by the device it is used on",
                buffer == nullptr ? "no buffer" : "'" + buffer->label() + "' of another device");
  return *own;
}

std::byte* host_address(const hal::Binding& binding, std::int64_t alignment, const std::string& where) {
  const CpuBuffer& buffer = cpu_buffer(binding.buffer, where);
  if (!hal::in_bounds(buffer, binding.offset, binding.bytes))
    throw Error(where,
                "a binding must lie inside its buffer '" + buffer.label() + "' of " +
                    std::to_string(buffer.bytes()) + " bytes",
                std::to_string(binding.bytes) + " bytes at offset " + std::to_string(binding.offset));
  if (binding.offset % alignment != 0)
    throw Error(where, "offsets must be multiples of " + std::to_string(alignment),
                std::to_string(binding.offset));
  return buffer.data() + binding.offset;
}

}  // namespace meshloom::backends::cpu
