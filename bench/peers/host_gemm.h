// Peers for matrix products on the host: OpenBLAS, BLIS, oneDNN and Eigen.
#pragma once

#include "bench/peers/peer.h"

namespace meshloom::bench {

std::unique_ptr<Peer> open_host_gemm(const std::string& name, const std::string& package, int threads);

}  // namespace meshloom::bench
