// Other libraries (peers) to compare with. None is needed to build or run: each is loaded when it is used.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/measure/subject.h"

namespace meshloom::bench {

struct PeerInfo {
  std::string name, backend, package;  // package: the Debian package to install
};
const std::vector<PeerInfo>& peers();
bool is_peer(const std::string& name);

class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::string version() const = 0;
  // Why it cannot run this call; "" = it can.
  virtual std::string refusal(const Workload& workload) const = 0;
  virtual std::unique_ptr<Subject> subject(const Workload& workload,
                                           const std::vector<kernels::HostTensor>& inputs, int sets) = 0;
};

// Uses as many threads as the device's profile has cores. Throws Error when the library is not installed,
// naming the package, or does not run on the device's backend.
std::unique_ptr<Peer> open_peer(const std::string& name, const hal::Device& device);

// "" when the call is a plain matrix product of f32 (with `bf16`, also of bf16 with results in bf16 or f32),
// otherwise the reason why it is not.
std::string not_a_plain_product(const Workload& workload, bool bf16 = false);

// A loaded library. It is never unloaded, because its threads do not end.
class Library {
 public:
  // Throws Error naming the package when none of the files can be loaded.
  Library(const std::vector<std::string>& files, const std::string& package);
  // Throws Error when the library has no such function.
  template <typename F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(address(name));
  }

 private:
  void* address(const char* name) const;
  void* handle_ = nullptr;
  std::string file_, package_;
};

// Peers for matrix products on the host: OpenBLAS, BLIS, oneDNN and Eigen (host_gemm.cpp).
std::unique_ptr<Peer> open_host_gemm(const std::string& name, const std::string& package, int threads);
#ifdef MESHLOOM_HAS_OPENCL
std::unique_ptr<Peer> open_clblast(const hal::Device& device);
#endif

}  // namespace meshloom::bench
