// Buffers of an OpenCL device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/opencl/device/api.h"
#include "hal/device.h"

namespace meshloom::backends::opencl {
class WorkQueue;

class ClBuffer final : public hal::Buffer {
 public:
  ClBuffer(std::int64_t bytes, std::string label, Memory object)
      : Buffer(bytes, std::move(label)), object_(std::move(object)) {}
  // Memory of the host, which stays mapped at `host` and is copied to and from by its address.
  // The queue must outlive it.
  ClBuffer(std::int64_t bytes, std::string label, Memory object, WorkQueue& queue, std::byte* host)
      : Buffer(bytes, std::move(label), host), object_(std::move(object)), queue_(&queue) {}
  ~ClBuffer() override;
  cl_mem object() const { return object_.get(); }

 private:
  Memory object_;
  WorkQueue* queue_ = nullptr;
};

// Throws OutOfMemory with the label when the driver cannot allocate it.
std::unique_ptr<ClBuffer> make_buffer(cl_context context, cl_command_queue queue, std::int64_t bytes,
                                      const std::string& label, const std::string& where);

// The same for memory of the host, which the driver pins where it must (CL_MEM_ALLOC_HOST_PTR).
std::unique_ptr<ClBuffer> make_host_buffer(cl_context context, WorkQueue& queue, std::int64_t bytes,
                                           const std::string& label, const std::string& where);

// Throws Error when the buffer is not of this backend.
const ClBuffer& cl_buffer(const hal::Buffer& buffer, const std::string& where);

}  // namespace meshloom::backends::opencl
