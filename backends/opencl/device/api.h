// The OpenCL C API, at the versions that this backend is written for.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <type_traits>
#include <utility>

namespace meshloom::backends::opencl {

// Owns one reference to an OpenCL object.
template <typename T, cl_int (*release)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Handle() {
    if (value_) release(value_);
  }
  T get() const { return value_; }
  // Keeps the reference for ever.
  void leak() { value_ = nullptr; }

 private:
  T value_ = nullptr;
};

using Context = Handle<cl_context, &clReleaseContext>;
using Queue = Handle<cl_command_queue, &clReleaseCommandQueue>;
using Program = Handle<cl_program, &clReleaseProgram>;
using Kernel = Handle<cl_kernel, &clReleaseKernel>;
using Event = Handle<cl_event, &clReleaseEvent>;
using Memory = Handle<cl_mem, &clReleaseMemObject>;

}  // namespace meshloom::backends::opencl
