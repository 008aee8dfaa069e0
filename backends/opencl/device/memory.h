// Buffers of an OpenCL device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/opencl/device/api.h"
#include "hal/device.h"

namespace meshloom::backends::opencl {

class ClBuffer final : public hal::Buffer {
 public:
  ClBuffer(std::int64_t bytes, std::string label, Memory memory)
      : Buffer(bytes, std::move(label)), memory_(std::move(memory)) {}
  cl_mem memory() const { return memory_.get(); }

 private:
  Memory memory_;
};

// Throws OutOfMemory with the label when the driver cannot allocate it.
std::unique_ptr<ClBuffer> make_buffer(cl_context context, cl_command_queue queue, std::int64_t bytes,
                                      const std::string& label, const std::string& where);

// Throws Error when the buffer is not of this backend.
const ClBuffer& cl_buffer(const hal::Buffer& buffer, const std::string& where);

}  // namespace meshloom::backends::opencl
