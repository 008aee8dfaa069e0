// Eigen's matrix product behind a C interface, in a separate library: it is compiled for newer instructions
// than the program, and its templates must not be linked with those of the program.
#include <Eigen/Core>
#include <cstdint>

extern "C" {

__attribute__((visibility("default"))) const char* meshloom_peer_eigen_version() {
#define MESHLOOM_TEXT_OF(x) #x
#define MESHLOOM_TEXT(x) MESHLOOM_TEXT_OF(x)
  return MESHLOOM_TEXT(EIGEN_WORLD_VERSION) "." MESHLOOM_TEXT(EIGEN_MAJOR_VERSION) "." MESHLOOM_TEXT(
      EIGEN_MINOR_VERSION);
}

__attribute__((visibility("default"))) void meshloom_peer_eigen(int threads, int trans_a, int trans_b,
                                                                std::int64_t m, std::int64_t n,
                                                                std::int64_t k, const float* a,
                                                                const float* b, float* c) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Const = Eigen::Map<const Matrix>;
  Eigen::setNbThreads(threads);
  const Const left(a, trans_a ? k : m, trans_a ? m : k), right(b, trans_b ? n : k, trans_b ? k : n);
  Eigen::Map<Matrix> result(c, m, n);
  if (trans_a && trans_b)
    result.noalias() = left.transpose() * right.transpose();
  else if (trans_a)
    result.noalias() = left.transpose() * right;
  else if (trans_b)
    result.noalias() = left * right.transpose();
  else
    result.noalias() = left * right;
}
}
