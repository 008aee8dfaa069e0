// For Vulkan on a CPU (lavapipe): one subgroup per workgroup, WG_X lanes, ROW_BLOCKS * WG_X rows x TN * WG_X columns of C.
// Lane r of `x` holds row r of a block of A's rows and goes round by shuffles, lane l of `y` a column of B; each is one
// gather of the vector unit, as long as A and B are texel buffers. Private arrays would cost more than they save: the
// driver indexes them lane by lane, and clears them one element per instruction. `packed`: 1 = A, 2 = B lies in panels
// (batch, panel, k, ROWS or COLUMNS), see pack_panels.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define BINDINGS(X) X(0, R, float, a) X(1, R, float, b) X(2, R, float, bias) X(3, R, float, residual) X(4, W, float, c) X(5, R, float, before)
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end) X(6, int, packed)
#include "matmul_epilogue.inc"

#define ROWS (ROW_BLOCKS * WG_X)
#define COLUMNS (TN * WG_X)
// `count` steps along K: all loads first, then each sum takes its products in one go, since the sums are more than the
// registers and every visit to one is a load and a store.
#define STEPS(j, count)                                                                                            \
  {                                                                                                                \
    float x[ROW_BLOCKS * count];                                                                                   \
    float y[TN * count];                                                                                           \
    UNROLL for (int u = 0; u < count; ++u) {                                                                       \
      UNROLL for (int i = 0; i < ROW_BLOCKS; ++i) x[i * count + u] = LOAD(a, row_at[i] + (j + u) * step_a);        \
      UNROLL for (int s = 0; s < TN; ++s) y[s * count + u] = LOAD(b, column_at[s] + (j + u) * step_b);             \
    }                                                                                                              \
    UNROLL for (int i = 0; i < ROW_BLOCKS; ++i) UNROLL for (int r = 0; r < WG_X; ++r) {                            \
      float of_row[count];                                                                                         \
      UNROLL for (int u = 0; u < count; ++u) of_row[u] = subgroupShuffle(x[i * count + u], uint(r));               \
      UNROLL for (int s = 0; s < TN; ++s) UNROLL for (int u = 0; u < count; ++u)                                   \
        sums[(i * WG_X + r) * TN + s] = MAD(of_row[u], y[s * count + u], sums[(i * WG_X + r) * TN + s]);           \
    }                                                                                                              \
  }

KERNEL_BEGIN
  int lane = LOCAL_ID(0);
  int m0 = GROUP_ID(1) * ROWS;
  int n0 = GROUP_ID(0) * COLUMNS;
  int batch = GROUP_ID(2);
  int row_step = (flags & 4) != 0 ? 1 : k;
  int step_a = (flags & 4) != 0 ? m : 1;
  int column_step = (flags & 8) != 0 ? k : 1;
  int step_b = (flags & 8) != 0 ? 1 : n;
  // Rows and columns past the end repeat the last: they are computed and not stored.
  int row_at[ROW_BLOCKS];
  int column_at[TN];
  UNROLL for (int i = 0; i < ROW_BLOCKS; ++i) row_at[i] = batch * m * k + IMIN(m0 + i * WG_X + lane, m - 1) * row_step;
  UNROLL for (int s = 0; s < TN; ++s) column_at[s] = batch * n * k + IMIN(n0 + s * WG_X + lane, n - 1) * column_step;
  if ((packed & 1) != 0) {
    step_a = ROWS;
    UNROLL for (int i = 0; i < ROW_BLOCKS; ++i) row_at[i] = (batch * NUM_GROUPS(1) + GROUP_ID(1)) * ROWS * k + i * WG_X + lane;
  }
  if ((packed & 2) != 0) {
    step_b = COLUMNS;
    UNROLL for (int s = 0; s < TN; ++s) column_at[s] = (batch * NUM_GROUPS(0) + GROUP_ID(0)) * COLUMNS * k + s * WG_X + lane;
  }
  float sums[ROWS * TN];
  UNROLL for (int e = 0; e < ROWS * TN; ++e) sums[e] = 0.0f;
  int j = k_begin;
  for (; j + DEPTH <= k_end; j += DEPTH) STEPS(j, DEPTH)
  for (; j < k_end; ++j) STEPS(j, 1)
  float done[ROWS * TN];
  UNROLL for (int e = 0; e < ROWS * TN; ++e) done[e] = sums[e];
  for (int e = 0; e < ROWS * TN; ++e) {
    int row = m0 + e / TN;
    int column = n0 + e % TN * WG_X + lane;
    int at = (batch * m + row) * n + column;
    if (row < m && column < n) FINISH(done[e], column, at)
  }
KERNEL_END
