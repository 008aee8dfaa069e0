// Calls of Vulkan and OpenCL that fail, or say that all went well and do nothing.
#ifdef MESHLOOM_FAULTS_OPENCL
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#endif
#ifdef MESHLOOM_FAULTS_VULKAN
#include <vulkan/vulkan.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/faults/shim/faults.h"

namespace {

using meshloom::tests::fault_of;
using meshloom::tests::next_function;

// A function that is stood in front of, and how often it was called.
class Function {
 public:
  explicit Function(const char* name) : name_(name), before_(last_) { last_ = this; }

  std::optional<int> fault() {
    ++calls_;
    return fault_of(name_, "");
  }
  template <typename F>
  F* next() {
    return next_function<F*>(name_);
  }

  static void write_counts() {
    const char* path = std::getenv("MESHLOOM_FAULTS_COUNTS");
    std::FILE* file = path ? std::fopen(path, "w") : nullptr;
    if (!file) return;
    for (const Function* f = last_; f; f = f->before_)
      std::fprintf(file, "%s %ld\n", f->name_, f->calls_.load());
    std::fclose(file);
  }

 private:
  static inline Function* last_ = nullptr;
  const char* name_;
  Function* before_;
  std::atomic<long> calls_{0};
};

[[gnu::destructor]] void at_the_end() { Function::write_counts(); }

// For functions that return a status: the fault's, or the driver's own.
template <typename F, typename... A>
auto pass(Function& function, F*, A... arguments) -> decltype(std::declval<F*>()(arguments...)) {
  if (const auto code = function.fault())
    return static_cast<decltype(std::declval<F*>()(arguments...))>(*code);
  return function.next<F>()(arguments...);
}

}  // namespace

extern "C" {

#ifdef MESHLOOM_FAULTS_VULKAN
VkResult vkQueueSubmit(VkQueue queue, std::uint32_t count, const VkSubmitInfo* submits, VkFence fence) {
  static Function function("vkQueueSubmit");
  const auto code = function.fault();
  const auto next = function.next<decltype(vkQueueSubmit)>();
  if (code && *code == VK_NOT_READY && count == 1) {  // work whose end nobody hears of
    VkSubmitInfo silent = *submits;
    silent.signalSemaphoreCount = 0;
    silent.pNext = nullptr;
    return next(queue, 1, &silent, fence);
  }
  if (code && *code != 0) return static_cast<VkResult>(*code);
  if (!code || count != 1) return next(queue, count, submits, fence);
  VkSubmitInfo empty = *submits;  // signals what it would have, without the work
  empty.commandBufferCount = 0;
  return next(queue, 1, &empty, fence);
}
void vkCmdDispatch(VkCommandBuffer commands, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  static Function function("vkCmdDispatch");
  if (!function.fault()) function.next<decltype(vkCmdDispatch)>()(commands, x, y, z);
}
VkResult vkWaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo* info, std::uint64_t timeout) {
  static Function function("vkWaitSemaphores");
  return pass(function, &vkWaitSemaphores, device, info, timeout);
}
VkResult vkCreateBuffer(VkDevice device, const VkBufferCreateInfo* info,
                        const VkAllocationCallbacks* callbacks, VkBuffer* buffer) {
  static Function function("vkCreateBuffer");
  return pass(function, &vkCreateBuffer, device, info, callbacks, buffer);
}
VkResult vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo* info,
                          const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
  static Function function("vkAllocateMemory");
  return pass(function, &vkAllocateMemory, device, info, callbacks, memory);
}
VkResult vkBindBufferMemory(VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize offset) {
  static Function function("vkBindBufferMemory");
  return pass(function, &vkBindBufferMemory, device, buffer, memory, offset);
}
VkResult vkCreateShaderModule(VkDevice device, const VkShaderModuleCreateInfo* info,
                              const VkAllocationCallbacks* callbacks, VkShaderModule* module) {
  static Function function("vkCreateShaderModule");
  return pass(function, &vkCreateShaderModule, device, info, callbacks, module);
}
VkResult vkCreateComputePipelines(VkDevice device, VkPipelineCache cache, std::uint32_t count,
                                  const VkComputePipelineCreateInfo* infos,
                                  const VkAllocationCallbacks* callbacks, VkPipeline* pipelines) {
  static Function function("vkCreateComputePipelines");
  return pass(function, &vkCreateComputePipelines, device, cache, count, infos, callbacks, pipelines);
}
VkResult vkEndCommandBuffer(VkCommandBuffer buffer) {
  static Function function("vkEndCommandBuffer");
  return pass(function, &vkEndCommandBuffer, buffer);
}
#endif

#ifdef MESHLOOM_FAULTS_OPENCL
cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                              const size_t* offset, const size_t* global, const size_t* local, cl_uint waits,
                              const cl_event* wait_list, cl_event* event) {
  static Function function("clEnqueueNDRangeKernel");
  const auto code = function.fault();
  if (code && *code == CL_SUBMITTED) {  // a command that never ends
    cl_context context = nullptr;
    next_function<decltype(&clGetCommandQueueInfo)>("clGetCommandQueueInfo")(
        queue, CL_QUEUE_CONTEXT, sizeof context, &context, nullptr);
    cl_int error = CL_SUCCESS;
    if (event) *event = next_function<decltype(&clCreateUserEvent)>("clCreateUserEvent")(context, &error);
    return error;
  }
  if (code) return *code;
  return function.next<decltype(clEnqueueNDRangeKernel)>()(queue, kernel, dimensions, offset, global, local,
                                                           waits, wait_list, event);
}
cl_int clFinish(cl_command_queue queue) {
  static Function function("clFinish");
  return pass(function, &clFinish, queue);
}
cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                           size_t size, void* data, cl_uint waits, const cl_event* wait_list,
                           cl_event* event) {
  static Function function("clEnqueueReadBuffer");
  return pass(function, &clEnqueueReadBuffer, queue, buffer, blocking, offset, size, data, waits, wait_list,
              event);
}
cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                            size_t size, const void* data, cl_uint waits, const cl_event* wait_list,
                            cl_event* event) {
  static Function function("clEnqueueWriteBuffer");
  return pass(function, &clEnqueueWriteBuffer, queue, buffer, blocking, offset, size, data, waits, wait_list,
              event);
}
cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
                      void(CL_CALLBACK* notify)(cl_program, void*), void* data) {
  static Function function("clBuildProgram");
  return pass(function, &clBuildProgram, program, count, devices, options, notify, data);
}
cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  static Function function("clSetKernelArg");
  return pass(function, &clSetKernelArg, kernel, index, size, value);
}
cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* data, cl_int* error) {
  static Function function("clCreateBuffer");
  const auto code = function.fault();
  if (!code) return function.next<decltype(clCreateBuffer)>()(context, flags, size, data, error);
  if (error) *error = *code;
  return nullptr;
}
cl_kernel clCreateKernel(cl_program program, const char* name, cl_int* error) {
  static Function function("clCreateKernel");
  const auto code = function.fault();
  if (!code) return function.next<decltype(clCreateKernel)>()(program, name, error);
  if (error) *error = *code;
  return nullptr;
}
#endif

}  // extern "C"
