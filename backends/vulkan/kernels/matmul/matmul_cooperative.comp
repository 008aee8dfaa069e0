// Matmul of 16-bit floats on the matrix unit. A workgroup of SUBGROUPS_M x SUBGROUPS_N subgroups computes BM x BN of C,
// each of them MATRICES_M x MATRICES_N matrices. Tiles of A and B, BK deep, go through workgroup memory as they lie in device memory: row by
// row, eight elements to a word of 16 bytes; the next ones are on their way while these are multiplied.
// WIDE_A, WIDE_B: rows in device memory are multiples of eight elements. C_TYPE: 0 is f32, 1 bf16, 2 f16.
#include "cooperative.inc"
#if C_TYPE
#define BINDINGS(X) X(0, R, uint16_t, a) X(1, R, uint16_t, b) X(2, R, float, bias) X(3, R, uint16_t, residual) \
  X(4, W, uint16_t, c) X(5, R, float, before)
#else
#define BINDINGS(X) X(0, R, uint16_t, a) X(1, R, uint16_t, b) X(2, R, float, bias) X(3, R, float, residual) \
  X(4, W, float, c) X(5, R, float, before)
#endif
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end)
#include "matmul_epilogue.inc"

#define BM (SUBGROUPS_M * MATRICES_M * MATRIX_M)
#define BN (SUBGROUPS_N * MATRICES_N * MATRIX_N)
// A tile's rows and columns are those of device memory.
#if TRANS_A
#define ROWS_A BK
#define COLUMNS_A BM
#else
#define ROWS_A BM
#define COLUMNS_A BK
#endif
#if TRANS_B
#define ROWS_B BN
#define COLUMNS_B BK
#else
#define ROWS_B BK
#define COLUMNS_B BN
#endif
// In words of eight; one more than needed, so that the rows of a matrix begin in different banks.
#define WORDS_A (COLUMNS_A / 8)
#define WORDS_B (COLUMNS_B / 8)
#define STRIDE_A (WORDS_A + 1)
#define STRIDE_B (WORDS_B + 1)
#define EACH_A ((ROWS_A * WORDS_A + WG_X - 1) / WG_X)
#define EACH_B ((ROWS_B * WORDS_B + WG_X - 1) / WG_X)
// Where word `at` of a tile begins, and its step of K.
#define ROW_A(at) int((at) / WORDS_A)
#define COLUMN_A(at) (int((at) % WORDS_A) * 8)
#define ROW_B(at) int((at) / WORDS_B)
#define COLUMN_B(at) (int((at) % WORDS_B) * 8)
#if TRANS_A
#define STEP_A ROW_A
#else
#define STEP_A COLUMN_A
#endif
#if TRANS_B
#define STEP_B COLUMN_B
#else
#define STEP_B ROW_B
#endif
// Word `at` of the tiles that begin at step k_at.
#if WIDE_A && TRANS_A
#define FETCH_A(word, at, k_at) FETCH_AT_EDGE(word, a, base_a, k_at + ROW_A(at), k, m0 + COLUMN_A(at), m, m)
#elif WIDE_A
#define FETCH_A(word, at, k_at) FETCH_AT_EDGE(word, a, base_a, m0 + ROW_A(at), m, k_at + COLUMN_A(at), k, k)
#elif TRANS_A
#define FETCH_A(word, at, k_at) FETCH(word, a, base_a, k_at + ROW_A(at), k_last, m0 + COLUMN_A(at), m, m)
#else
#define FETCH_A(word, at, k_at) FETCH(word, a, base_a, m0 + ROW_A(at), m, k_at + COLUMN_A(at), k_last, k)
#endif
#if WIDE_B && TRANS_B
#define FETCH_B(word, at, k_at) FETCH_AT_EDGE(word, b, base_b, n0 + ROW_B(at), n, k_at + COLUMN_B(at), k, k)
#elif WIDE_B
#define FETCH_B(word, at, k_at) FETCH_AT_EDGE(word, b, base_b, k_at + ROW_B(at), k, n0 + COLUMN_B(at), n, n)
#elif TRANS_B
#define FETCH_B(word, at, k_at) FETCH(word, b, base_b, n0 + ROW_B(at), n, k_at + COLUMN_B(at), k_last, k)
#else
#define FETCH_B(word, at, k_at) FETCH(word, b, base_b, k_at + ROW_B(at), k_last, n0 + COLUMN_B(at), n, n)
#endif
#define FETCH_TILES(k_at)                                                                \
  UNROLL for (int e = 0; e < EACH_A; ++e) FETCH_A(next_a[e], uint(id) + uint(e * WG_X), k_at) \
  UNROLL for (int e = 0; e < EACH_B; ++e) FETCH_B(next_b[e], uint(id) + uint(e * WG_X), k_at)
#define SHARED(X) X(uvec4, tile_a, (ROWS_A * STRIDE_A)) X(uvec4, tile_b, (ROWS_B * STRIDE_B)) \
  X(float, patches, (SUBGROUPS_M * SUBGROUPS_N * MATRIX_M * MATRIX_N))

KERNEL_BEGIN
  int id = LOCAL_ID(0);
  int n0 = GROUP_ID(0) * BN;
  int m0 = GROUP_ID(1) * BM;
  OWN_K_RANGE(BK)
  int own = int(gl_SubgroupID);
  int lane = int(gl_SubgroupInvocationID);
  int m_own = own / SUBGROUPS_N * MATRICES_M * MATRIX_M;
  int n_own = own % SUBGROUPS_N * MATRICES_N * MATRIX_N;
  int base_a = batch * m * k;
  int base_b = batch * k * n;
  uvec4 next_a[EACH_A];
  uvec4 next_b[EACH_B];
  MatrixSum sums[MATRICES_M * MATRICES_N];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N; ++e) sums[e] = MatrixSum(0.0f);
  FETCH_TILES(k_first)
  for (int k0 = k_first; k0 < k_last; k0 += BK) {
    BARRIER();
    // Steps from k_last on are zeros; rows beyond M and N are not written to C.
    UNROLL for (int e = 0; e < EACH_A; ++e) {
      uint at = uint(id) + uint(e * WG_X);
      if (ROWS_A * WORDS_A % WG_X == 0 || at < ROWS_A * WORDS_A)
        tile_a[ROW_A(at) * STRIDE_A + int(at % WORDS_A)] = k0 + STEP_A(at) < k_last ? next_a[e] : uvec4(0u);
    }
    UNROLL for (int e = 0; e < EACH_B; ++e) {
      uint at = uint(id) + uint(e * WG_X);
      if (ROWS_B * WORDS_B % WG_X == 0 || at < ROWS_B * WORDS_B)
        tile_b[ROW_B(at) * STRIDE_B + int(at % WORDS_B)] = k0 + STEP_B(at) < k_last ? next_b[e] : uvec4(0u);
    }
    BARRIER();
    // Also behind the last step: a branch around the loads would wait for them.
    FETCH_TILES(k0 + BK)
    UNROLL for (int j = 0; j < BK; j += MATRIX_K) {
      MatrixA x[MATRICES_M];
      MatrixB y[MATRICES_N];
      UNROLL for (int i = 0; i < MATRICES_M; ++i) {
        int row = m_own + i * MATRIX_M;
#if TRANS_A
        coopMatLoadNV(x[i], tile_a, j * STRIDE_A + row / 8, STRIDE_A, true);
#else
        coopMatLoadNV(x[i], tile_a, row * STRIDE_A + j / 8, STRIDE_A, false);
#endif
      }
      UNROLL for (int i = 0; i < MATRICES_N; ++i) {
        int column = n_own + i * MATRIX_N;
#if TRANS_B
        coopMatLoadNV(y[i], tile_b, column * STRIDE_B + j / 8, STRIDE_B, true);
#else
        coopMatLoadNV(y[i], tile_b, j * STRIDE_B + column / 8, STRIDE_B, false);
#endif
      }
      UNROLL for (int r = 0; r < MATRICES_M; ++r)
        UNROLL for (int s = 0; s < MATRICES_N; ++s) sums[r * MATRICES_N + s] = coopMatMulAddNV(x[r], y[s], sums[r * MATRICES_N + s]);
    }
  }
  // Which invocation holds which element is the driver's secret: each matrix goes through workgroup memory.
  int patch_at = own * MATRIX_M * MATRIX_N;
  UNROLL for (int r = 0; r < MATRICES_M; ++r) {
    UNROLL for (int s = 0; s < MATRICES_N; ++s) {
      BARRIER();
      coopMatStoreNV(sums[r * MATRICES_N + s], patches, patch_at, MATRIX_N, false);
      BARRIER();
      for (int e = lane; e < MATRIX_M * MATRIX_N; e += LANES_OF_SUBGROUP) {
        int row = m0 + m_own + r * MATRIX_M + e / MATRIX_N;
        int column = n0 + n_own + s * MATRIX_N + e % MATRIX_N;
        if (row < m && column < n) FINISH(patches[patch_at + e], column, (matrix * m + row) * n + column)
      }
    }
  }
KERNEL_END
