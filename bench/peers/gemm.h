// A matrix product as the libraries of the host are asked for it, and the C interface of the one in a module.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshloom::bench {

// Row-major C (g, m, n) = op(A) op(B); the leading dimensions are those of A and B as they are stored.
struct Gemm {
  bool bf16, bf16_out;  // the elements of A and B, and of C; else f32
  bool trans_a, trans_b;
  std::int64_t g, m, n, k;
  std::int64_t lda() const { return trans_a ? m : k; }
  std::int64_t ldb() const { return trans_b ? k : n; }
};

}  // namespace meshloom::bench

// oneDNN's matmul primitive. Those that return text return nullptr, or what went wrong, which holds until the
// thread's next call.
extern "C" {
// Makes a primitive, for as many threads as are set then. With `packed`, B is put in an order of oneDNN's
// choice when buffers are bound, which takes `packed_bytes`; else that is 0.
const char* meshloom_peer_onednn_open(const meshloom::bench::Gemm* gemm, int packed, void** product,
                                      std::size_t* packed_bytes);
// Makes a call on buffers, which must outlive it as `product` must not; `packed_b` is written here.
const char* meshloom_peer_onednn_bind(const void* product, const void* a, const void* b, void* c,
                                      void* packed_b, void** call);
const char* meshloom_peer_onednn_run(void* call);
void meshloom_peer_onednn_close(void* product_or_call);
}
