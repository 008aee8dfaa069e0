#include "bench/peers/peer.h"

#include <dlfcn.h>

#include <algorithm>

#include "hal/error.h"
#include "hal/suggest.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::bench {

const std::vector<PeerInfo>& peers() {
  static const std::vector<PeerInfo> table{{"openblas", "cpu", "libopenblas0-pthread"},
                                           {"blis", "cpu", "libblis4-pthread"},
                                           {"onednn", "cpu", "libdnnl2"},
                                           {"onednn_packed", "cpu", "libdnnl-dev"},
                                           {"eigen", "cpu", "libeigen3-dev"},
                                           {"clblast", "opencl", "libclblast1"}};
  return table;
}

bool is_peer(const std::string& name) {
  return std::any_of(peers().begin(), peers().end(), [&](const PeerInfo& peer) { return peer.name == name; });
}

std::unique_ptr<Peer> open_peer(const std::string& name, const hal::Device& device) {
  const auto peer =
      std::find_if(peers().begin(), peers().end(), [&](const PeerInfo& p) { return p.name == name; });
  if (peer == peers().end()) {
    std::vector<std::string> names;
    for (const PeerInfo& p : peers()) names.push_back(p.name);
    throw Error("peer", "must be one of " + hal::join(names) + hal::suggestion(name, names),
                "'" + name + "'");
  }
  if (peer->backend != device.info().backend)
    throw Error("peer " + name, "must be used on backend " + peer->backend, "device " + device.info().id);
#ifdef MESHLOOM_HAS_OPENCL
  if (name == "clblast") return open_clblast(device);
#endif
  return open_host_gemm(name, peer->package, device.profile().cores);
}

std::string not_a_plain_product(const Workload& workload, bool bf16) {
  if (workload.contract->name != "matmul") return "it computes matrix products only";
  const kernels::MatmulDims dims = kernels::matmul_dims(workload.view());
  const kernels::DType in = workload.inputs.front().dtype, out = workload.outputs.front().dtype;
  const bool floats = in == kernels::DType::f32 && out == kernels::DType::f32;
  if (!floats && !bf16) return "it is used for f32 only";
  if (!floats && (in != kernels::DType::bf16 || out == kernels::DType::f16))
    return "it is used only for f32, and for bf16 with results in bf16 or f32";
  if (dims.bias >= 0 || dims.residual >= 0 || dims.activation != kernels::Activation::none)
    return "the call has an epilogue (bias, residual or activation), which the library does not support";
  return "";
}

Library::Library(const std::vector<std::string>& files, const std::string& package) : package_(package) {
  std::string problem;
  for (const std::string& file : files) {
    // RTLD_LOCAL, because several of these libraries export the same BLAS names.
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    file_ = file;
    if (handle_) return;
    if (problem.empty()) problem = dlerror();
  }
  throw Error("peer library " + files.front(), "must be installed (package " + package + ")", problem);
}

void* Library::address(const char* name) const {
  void* address = dlsym(handle_, name);
  if (!address)
    throw Error("peer library " + file_,
                std::string("must have the function ") + name + " (package " + package_ + ")");
  return address;
}

}  // namespace meshloom::bench
