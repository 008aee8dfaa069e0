// For Vulkan on a CPU: one subgroup per workgroup, ROWS rows x N columns of C. Its lanes take neighbours along K, which runs
// along the rows of both A and B, and add their sums up at the end.
#extension GL_KHR_shader_subgroup_arithmetic : require
#define BINDINGS(X) X(0, R, float, a) X(1, R, float, b) X(2, R, float, bias) X(3, R, float, residual) X(4, W, float, c) X(5, R, float, before)
#define CONSTANTS(X) X(0, int, m) X(1, int, k) X(2, int, flags) X(3, int, k_begin) X(4, int, k_end)
#include "matmul_epilogue.inc"

KERNEL_BEGIN
  int lane = LOCAL_ID(0);
  int m0 = GROUP_ID(0) * ROWS;
  int batch = GROUP_ID(2);
  // Rows past the end repeat the last: they are computed and not stored.
  int row_at[ROWS];
  UNROLL for (int r = 0; r < ROWS; ++r) row_at[r] = (batch * m + IMIN(m0 + r, m - 1)) * k;
  int column_at = batch * N * k;
  float sums[ROWS * N];
  UNROLL for (int e = 0; e < ROWS * N; ++e) sums[e] = 0.0f;
  for (int j = k_begin + lane; j < k_end; j += WG_X) {
    float x[ROWS];
    UNROLL for (int r = 0; r < ROWS; ++r) x[r] = LOAD(a, row_at[r] + j);
    UNROLL for (int s = 0; s < N; ++s) {
      float y = LOAD(b, column_at + s * k + j);
      UNROLL for (int r = 0; r < ROWS; ++r) sums[r * N + s] = MAD(x[r], y, sums[r * N + s]);
    }
  }
  UNROLL for (int e = 0; e < ROWS * N; ++e) {
    float sum = subgroupAdd(sums[e]);
    int row = m0 + e / N;
    if (lane == 0 && row < m) FINISH(sum, e % N, (batch * m + row) * N + e % N)
  }
KERNEL_END
