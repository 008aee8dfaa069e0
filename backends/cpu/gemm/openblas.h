// OpenBLAS, loaded when a matmul first asks for it. Linked to, it would start threads before main(), and a program whose
// threads find no memory would not end.
#pragma once

#include <string>

namespace meshloom::backends::cpu {

// Row-major C = A B in f32 as cblas_sgemm(Order, TransA, TransB, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc).
struct OpenBlas {
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float,
                         float*, int);
  using SetThreads = void (*)(int);
  static constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;

  Sgemm sgemm = nullptr;             // may be called from many threads at once
  SetThreads set_threads = nullptr;  // that one call may use
  std::string why_missing;           // where sgemm is nullptr
};
// Of the process; the first call loads it, on one thread.
const OpenBlas& openblas();

}  // namespace meshloom::backends::cpu
