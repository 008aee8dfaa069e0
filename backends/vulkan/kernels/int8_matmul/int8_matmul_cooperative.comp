// Exact products of eight-bit integers on the matrix unit; blocks as in matmul_cooperative.comp. Rows of both sides run along K,
// eight numbers to a word; the next ones are on their way while these are multiplied.
// WIDE: rows are multiples of eight numbers.
#include "cooperative.inc"
#define BINDINGS(X) X(0, R, int, a) X(1, R, float, a_scales) X(2, R, int, b) X(3, R, float, b_scales) X(4, R, float, bias) \
  X(5, W, float, c)
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, with_bias)
#define BM (SUBGROUPS_M * MATRICES_M * MATRIX_M)
#define BN (SUBGROUPS_N * MATRICES_N * MATRIX_N)
#define WORDS (BK / 8)
// Two words more, so that the rows of a matrix begin in different banks and at sixteen bytes.
#define STRIDE (WORDS + 2)
#define EACH_A ((BM * WORDS + WG_X - 1) / WG_X)
#define EACH_B ((BN * WORDS + WG_X - 1) / WG_X)
#define SHARED(X) X(uvec2, tile_a, (BM * STRIDE)) X(uvec2, tile_b, (BN * STRIDE)) \
  X(int, patches, (SUBGROUPS_M * SUBGROUPS_N * MATRIX_M * MATRIX_N))

// Numbers [at, at + 8) of a row, 0 beyond its end.
#if WIDE
#define FETCH_WORD(word, name, row, rows, at)                                                   \
  {                                                                                             \
    word = uvec2(0u);                                                                           \
    if ((row) < (rows) && (at) < k)                                                             \
      word = uvec2(LOAD(name, ((row) * k + (at)) / 4), LOAD(name, ((row) * k + (at)) / 4 + 1)); \
  }
#else
#define FETCH_WORD(word, name, row, rows, at)                                                                \
  {                                                                                                          \
    word = uvec2(0u);                                                                                        \
    if ((row) < (rows)) {                                                                                    \
      UNROLL for (int mesh_i = 0; mesh_i < 8; ++mesh_i) {                                                    \
        int mesh_at = (row) * k + (at) + mesh_i;                                                             \
        if ((at) + mesh_i < k)                                                                               \
          word[mesh_i / 4] |= uint(LOAD(name, mesh_at / 4) >> (mesh_at % 4 * 8) & 255) << (8 * (mesh_i % 4)); \
      }                                                                                                      \
    }                                                                                                        \
  }
#endif

KERNEL_BEGIN
  int id = LOCAL_ID(0);
  int n0 = GROUP_ID(0) * BN;
  int m0 = GROUP_ID(1) * BM;
  int own = int(gl_SubgroupID);
  int lane = int(gl_SubgroupInvocationID);
  int m_own = own / SUBGROUPS_N * MATRICES_M * MATRIX_M;
  int n_own = own % SUBGROUPS_N * MATRICES_N * MATRIX_N;
  uvec2 next_a[EACH_A];
  uvec2 next_b[EACH_B];
  MatrixSum sums[MATRICES_M * MATRICES_N];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N; ++e) sums[e] = MatrixSum(0);
  for (int k0 = -BK; k0 < k; k0 += BK) {
    // The first round only fetches.
    if (k0 >= 0) {
      BARRIER();
      UNROLL for (int e = 0; e < EACH_A; ++e) {
        int at = id + e * WG_X;
        if (at < BM * WORDS) tile_a[at / WORDS * STRIDE + at % WORDS] = next_a[e];
      }
      UNROLL for (int e = 0; e < EACH_B; ++e) {
        int at = id + e * WG_X;
        if (at < BN * WORDS) tile_b[at / WORDS * STRIDE + at % WORDS] = next_b[e];
      }
      BARRIER();
    }
    int k1 = k0 + BK;
    if (k1 < k) {
      UNROLL for (int e = 0; e < EACH_A; ++e) {
        int at = id + e * WG_X;
        FETCH_WORD(next_a[e], a, m0 + at / WORDS, m, k1 + at % WORDS * 8)
      }
      UNROLL for (int e = 0; e < EACH_B; ++e) {
        int at = id + e * WG_X;
        FETCH_WORD(next_b[e], b, n0 + at / WORDS, n, k1 + at % WORDS * 8)
      }
    }
    if (k0 >= 0) {
      UNROLL for (int j = 0; j < BK; j += MATRIX_K) {
        MatrixA x[MATRICES_M];
        MatrixB y[MATRICES_N];
        UNROLL for (int i = 0; i < MATRICES_M; ++i)
          coopMatLoadNV(x[i], tile_a, (m_own + i * MATRIX_M) * STRIDE + j / 8, STRIDE, false);
        UNROLL for (int i = 0; i < MATRICES_N; ++i)
          coopMatLoadNV(y[i], tile_b, (n_own + i * MATRIX_N) * STRIDE + j / 8, STRIDE, true);
        UNROLL for (int r = 0; r < MATRICES_M; ++r)
          UNROLL for (int s = 0; s < MATRICES_N; ++s) sums[r * MATRICES_N + s] = coopMatMulAddNV(x[r], y[s], sums[r * MATRICES_N + s]);
      }
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
        if (row < m && column < n) {
          float value = TO_FLOAT(patches[patch_at + e]) * LOAD(a_scales, row) * LOAD(b_scales, column);
          if (with_bias != 0) value += LOAD(bias, column);
          STORE(c, row * n + column, value);
        }
      }
    }
  }
KERNEL_END
