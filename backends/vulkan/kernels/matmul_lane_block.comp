// For Vulkan on a CPU (lavapipe): one subgroup per workgroup, WG_X lanes. Such drivers load from buffers and workgroup
// memory lane by lane and broadcast in a loop over the lanes, some 25 cycles each, so that every value is loaded once
// into private arrays and a broadcast serves TN products: lane r of `rows_of` holds a row of A, lane l of `columns_of`
// a column of B. The workgroup computes ROW_BLOCKS * WG_X rows x COLUMN_BLOCKS * TN * WG_X columns of C, KC deep at a
// time. The arrays are small because the driver clears them one element per instruction: they are most of its compile
// time. Steps of four, zeros past the end, and only k_begin to k_end of K: the driver ends loops after 65,535
// iterations in all, so that the host splits a long K over dispatches. flags & 16: `before` holds the earlier sums.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define BINDINGS(X) X(0, R, float, a) X(1, R, float, b) X(2, R, float, bias) X(3, R, float, residual) X(4, W, float, c) X(5, R, float, before)
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end)
#include "matmul_epilogue.inc"

#define BLOCKS (ROW_BLOCKS * COLUMN_BLOCKS)
#define BLOCK_SIZE (WG_X * TN)  // elements of one lane in a block of WG_X rows x TN * WG_X columns

KERNEL_BEGIN
  int lane = LOCAL_ID(0);
  int m0 = GROUP_ID(1) * ROW_BLOCKS * WG_X;
  int n0 = GROUP_ID(0) * COLUMN_BLOCKS * TN * WG_X;
  int batch = GROUP_ID(2);
  int row_step = (flags & 4) != 0 ? 1 : k;
  int step_a = (flags & 4) != 0 ? m : 1;
  int column_step = (flags & 8) != 0 ? k : 1;
  int step_b = (flags & 8) != 0 ? 1 : n;
  float rows_of[ROW_BLOCKS * KC];
  float columns_of[COLUMN_BLOCKS * TN * KC];
  float sums[BLOCKS * BLOCK_SIZE];
  for (int e = 0; e < BLOCKS * BLOCK_SIZE; ++e) sums[e] = 0.0f;
  for (int k0 = k_begin; k0 < k_end; k0 += KC) {
    int depth = IMIN(KC, k_end - k0);
    // Rows and columns past the end repeat the last: they are computed and not stored.
    for (int i = 0; i < ROW_BLOCKS; ++i) {
      int row = IMIN(m0 + i * WG_X + lane, m - 1);
      int at = batch * m * k + row * row_step + k0 * step_a;
      for (int j = 0; j < depth; j += 4)
        UNROLL for (int u = 0; u < 4; ++u) {
          float x = LOAD(a, at + IMIN(j + u, depth - 1) * step_a);
          rows_of[i * KC + j + u] = j + u < depth ? x : 0.0f;
        }
    }
    for (int i = 0; i < COLUMN_BLOCKS * TN; ++i) {
      int column = IMIN(n0 + i * WG_X + lane, n - 1);
      int at = batch * k * n + column * column_step + k0 * step_b;
      for (int j = 0; j < depth; j += 4)
        UNROLL for (int u = 0; u < 4; ++u) {
          float y = LOAD(b, at + IMIN(j + u, depth - 1) * step_b);
          columns_of[i * KC + j + u] = j + u < depth ? y : 0.0f;
        }
    }
    for (int block = 0; block < BLOCKS; ++block) {
      int at_row = (block % ROW_BLOCKS) * KC;
      int at_column = (block / ROW_BLOCKS) * TN * KC;
      int at_sum = block * BLOCK_SIZE;
      float acc[BLOCK_SIZE];
      UNROLL for (int e = 0; e < BLOCK_SIZE; ++e) acc[e] = sums[at_sum + e];
      for (int j4 = 0; j4 < depth; j4 += 4) UNROLL for (int u = 0; u < 4; ++u) {
        int j = j4 + u;
        float x = rows_of[at_row + j];
        float y[TN];
        UNROLL for (int s = 0; s < TN; ++s) y[s] = columns_of[at_column + s * KC + j];
        UNROLL for (int r = 0; r < WG_X; ++r) {
          float of_row = subgroupShuffle(x, uint(r));
          UNROLL for (int s = 0; s < TN; ++s) acc[r * TN + s] = MAD(of_row, y[s], acc[r * TN + s]);
        }
      }
      UNROLL for (int e = 0; e < BLOCK_SIZE; ++e) sums[at_sum + e] = acc[e];
    }
  }
  for (int e = 0; e < BLOCKS * BLOCK_SIZE; ++e) {
    int block = e / BLOCK_SIZE;
    int inside = e - block * BLOCK_SIZE;
    int row = m0 + (block % ROW_BLOCKS) * WG_X + inside / TN;
    int column = n0 + ((block / ROW_BLOCKS) * TN + inside % TN) * WG_X + lane;
    int at = (batch * m + row) * n + column;
    if (row < m && column < n) {
      float sum = sums[e];
      if ((flags & 16) != 0) sum += LOAD(before, at);
      FINISH(sum, column, at)
    }
  }
KERNEL_END
