// A matrix product for the host libraries, and the C interface of the oneDNN module.
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

// oneDNN's matmul primitive. The functions return nullptr, or an error message that is valid until the
// thread's next call.
extern "C" {
// Creates a primitive for the current number of threads. With `packed`, B is reordered into oneDNN's
// preferred layout when buffers are bound, which needs `packed_bytes`; otherwise that is 0.
const char* meshloom_peer_onednn_open(const meshloom::bench::Gemm* gemm, int packed, void** product,
                                      std::size_t* packed_bytes);
// Creates a call on buffers, which must outlive it (`product` need not); writes `packed_b`.
const char* meshloom_peer_onednn_bind(const void* product, const void* a, const void* b, void* c,
                                      void* packed_b, void** call);
const char* meshloom_peer_onednn_run(void* call);
void meshloom_peer_onednn_close(void* product_or_call);
}
