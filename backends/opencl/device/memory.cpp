#include "backends/opencl/device/memory.h"

#include "backends/opencl/device/status.h"
#include "backends/opencl/device/work_queue.h"

namespace meshloom::backends::opencl {
namespace {

void require_room(cl_int status, std::int64_t bytes, const std::string& place) {
  if (status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_RESOURCES ||
      status == CL_OUT_OF_HOST_MEMORY || status == CL_INVALID_BUFFER_SIZE)
    throw hal::OutOfMemory(place, "the driver must have room for " + std::to_string(bytes) + " bytes",
                           status_name(status));
}

}  // namespace

ClBuffer::~ClBuffer() {
  if (!host_address()) return;
  if (!queue_->drain()) {  // submitted copies may still use the address
    object_.leak();
    return;
  }
  clEnqueueUnmapMemObject(queue_->get(), object_.get(), host_address(), 0, nullptr, nullptr);
  clFlush(queue_->get());
}

std::unique_ptr<ClBuffer> make_buffer(cl_context context, cl_command_queue queue, std::int64_t bytes,
                                      const std::string& label, const std::string& where) {
  cl_int status = CL_SUCCESS;
  Memory memory{
      clCreateBuffer(context, CL_MEM_READ_WRITE, static_cast<std::size_t>(bytes), nullptr, &status)};
  const std::string place = where + ", allocating '" + label + "'";
  if (status == CL_SUCCESS) {
    // Drivers allocate at first use; writing now makes a full device fail here and not during a step.
    const cl_mem object = memory.get();
    status = clEnqueueMigrateMemObjects(queue, 1, &object, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0,
                                        nullptr, nullptr);
  }
  require_room(status, bytes, place);
  check(status, place, "clCreateBuffer");
  return std::make_unique<ClBuffer>(bytes, label, std::move(memory));
}

std::unique_ptr<ClBuffer> make_host_buffer(cl_context context, WorkQueue& queue, std::int64_t bytes,
                                           const std::string& label, const std::string& where) {
  const std::string place = where + ", allocating '" + label + "' on the host";
  const auto size = static_cast<std::size_t>(bytes);
  cl_int status = CL_SUCCESS;
  Memory object{clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size, nullptr, &status)};
  require_room(status, bytes, place);
  check(status, place, "clCreateBuffer with CL_MEM_ALLOC_HOST_PTR");
  void* const host = clEnqueueMapBuffer(queue.get(), object.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                        size, 0, nullptr, nullptr, &status);
  require_room(status == CL_MAP_FAILURE ? CL_OUT_OF_HOST_MEMORY : status, bytes, place);
  check(status, place, "clEnqueueMapBuffer");
  return std::make_unique<ClBuffer>(bytes, label, std::move(object), queue, static_cast<std::byte*>(host));
}

const ClBuffer& cl_buffer(const hal::Buffer& buffer, const std::string& where) {
  if (const auto* own = dynamic_cast<const ClBuffer*>(&buffer)) return *own;
  throw hal::Error(where, "a buffer must be of the device that uses it",
                   "'" + buffer.label() + "' of another backend");
}

}  // namespace meshloom::backends::opencl
