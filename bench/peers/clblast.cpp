// CLBlast on the same OpenCL device, with its own context and queue.
#ifdef MESHLOOM_HAS_OPENCL
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <fmt/format.h>

#include "bench/peers/peer.h"
#include "hal/error.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::bench {
namespace {

using kernels::HostTensor;

constexpr cl_device_info kBoardNameAmd = 0x4038;

void must(cl_int status, const char* what) {
  if (status != CL_SUCCESS)
    throw Error("peer clblast", std::string(what) + " must succeed", fmt::format("status {}", status));
}

std::string text_of(cl_device_id device, cl_device_info what) {
  char name[256] = {};
  return clGetDeviceInfo(device, what, sizeof name - 1, name, nullptr) == CL_SUCCESS ? name : "";
}

// The OpenCL device with this name; for AMD's devices the name of the board.
cl_device_id find_device(const std::string& wanted) {
  cl_uint count = 0;
  must(clGetPlatformIDs(0, nullptr, &count), "clGetPlatformIDs");
  std::vector<cl_platform_id> platforms(count);
  must(clGetPlatformIDs(count, platforms.data(), nullptr), "clGetPlatformIDs");
  for (cl_platform_id platform : platforms) {
    cl_uint devices = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &devices) != CL_SUCCESS) continue;
    std::vector<cl_device_id> ids(devices);
    must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, devices, ids.data(), nullptr), "clGetDeviceIDs");
    for (cl_device_id id : ids)
      if (text_of(id, CL_DEVICE_NAME) == wanted || text_of(id, kBoardNameAmd) == wanted) return id;
  }
  throw Error("peer clblast", "must find the OpenCL device again", "'" + wanted + "'");
}

using Sgemm = int(int, int, int, std::size_t, std::size_t, std::size_t, float, cl_mem, std::size_t,
                  std::size_t, cl_mem, std::size_t, std::size_t, float, cl_mem, std::size_t, std::size_t,
                  cl_command_queue*, cl_event*);

class ClSubject final : public Subject {
 public:
  ClSubject(Sgemm* sgemm, cl_context context, cl_command_queue queue, const Workload& workload,
            const std::vector<HostTensor>& inputs, int sets)
      : sgemm_(sgemm),
        context_(context),
        queue_(queue),
        type_(workload.outputs.front()),
        dims_(kernels::matmul_dims(workload.view())) {
    HostTensor blank(type_);
    poison(blank);
    for (int s = 0; s < sets; ++s) sets_.push_back({place(inputs[0]), place(inputs[1]), place(blank)});
  }
  ~ClSubject() override {
    for (cl_mem memory : memories_) clReleaseMemObject(memory);
  }
  ClSubject(const ClSubject&) = delete;
  ClSubject& operator=(const ClSubject&) = delete;

  void prepare(int calls) override { calls_ = calls; }
  void run() override {
    constexpr int kRowMajor = 101, kNo = 111, kYes = 112;
    const auto m = static_cast<std::size_t>(dims_.m), n = static_cast<std::size_t>(dims_.n);
    const auto k = static_cast<std::size_t>(dims_.k);
    for (int i = 0; i < calls_; ++i) {
      const Set& set = sets_[static_cast<std::size_t>(i) % sets_.size()];
      for (std::size_t g = 0; g < static_cast<std::size_t>(dims_.g); ++g)
        must(sgemm_(kRowMajor, dims_.trans_a ? kYes : kNo, dims_.trans_b ? kYes : kNo, m, n, k, 1, set.a,
                    g * m * k, dims_.trans_a ? m : k, set.b, g * k * n, dims_.trans_b ? k : n, 0, set.c,
                    g * m * n, n, &queue_, nullptr),
             "CLBlastSgemm");
    }
    must(clFinish(queue_), "clFinish");
  }
  int sets() const override { return static_cast<int>(sets_.size()); }
  std::vector<HostTensor> outputs(int set) override {
    HostTensor c(type_);
    must(clEnqueueReadBuffer(queue_, sets_.at(static_cast<std::size_t>(set)).c, CL_TRUE, 0, c.data.size(),
                             c.data.data(), 0, nullptr, nullptr),
         "clEnqueueReadBuffer");
    return {c};
  }

 private:
  struct Set {
    cl_mem a, b, c;
  };
  cl_mem place(const HostTensor& tensor) {
    cl_int status = CL_SUCCESS;
    memories_.push_back(clCreateBuffer(context_, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, tensor.data.size(),
                                       const_cast<std::byte*>(tensor.data.data()), &status));
    must(status, "clCreateBuffer");
    return memories_.back();
  }

  Sgemm* sgemm_;
  cl_context context_;
  cl_command_queue queue_;
  kernels::TensorType type_;
  kernels::MatmulDims dims_;
  std::vector<cl_mem> memories_;
  std::vector<Set> sets_;
  int calls_ = 1;
};

class ClPeer final : public Peer {
 public:
  explicit ClPeer(const hal::Device& device)
      : library_({"libclblast.so.1"}, "libclblast1"), sgemm_(library_.function<Sgemm>("CLBlastSgemm")) {
    cl_device_id id = find_device(device.info().name);
    cl_int status = CL_SUCCESS;
    context_ = clCreateContext(nullptr, 1, &id, nullptr, nullptr, &status);
    must(status, "clCreateContext");
    queue_ = clCreateCommandQueue(context_, id, 0, &status);
    must(status, "clCreateCommandQueue");
  }
  ~ClPeer() override {
    clReleaseCommandQueue(queue_);
    clReleaseContext(context_);
  }
  ClPeer(const ClPeer&) = delete;
  ClPeer& operator=(const ClPeer&) = delete;

  std::string version() const override { return "CLBlast, as tuned by its own database"; }
  std::string refusal(const Workload& workload) const override { return not_a_plain_product(workload); }
  std::unique_ptr<Subject> subject(const Workload& workload, const std::vector<HostTensor>& inputs,
                                   int sets) override {
    return std::make_unique<ClSubject>(sgemm_, context_, queue_, workload, inputs, sets);
  }

 private:
  Library library_;
  Sgemm* sgemm_;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
};

}  // namespace

std::unique_ptr<Peer> open_clblast(const hal::Device& device) { return std::make_unique<ClPeer>(device); }

}  // namespace meshloom::bench
#endif
