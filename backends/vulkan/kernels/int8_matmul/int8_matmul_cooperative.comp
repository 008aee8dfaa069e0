// Exact products of eight-bit integers on the matrix unit; blocks as in matmul_cooperative.comp. Rows of both sides run along K,
// NUMBERS to a word; the next words are on their way while these are multiplied.
// WIDE: rows are multiples of NUMBERS. WHOLE_STEPS: K is a multiple of BK, so that nothing need be replaced by zeros.
// ROLLED: an iteration is one step of the products, because ANV has sums twice in registers that go through several of them. Mesa
// unrolls no loop around another of unknown turns, and has an array with an index of such a loop in memory.
#include "cooperative.inc"
#if defined(ROLLED) && BK != MATRIX_K
#error ROLLED has one step.
#endif
#define BINDINGS(X) X(0, R, int, a) X(1, R, float, a_scales) X(2, R, int, b) X(3, R, float, b_scales) X(4, R, float, bias) \
  X(5, W, float, c)
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, with_bias)
#define BM (SUBGROUPS_M * MATRICES_M * MATRIX_M)
#define BN (SUBGROUPS_N * MATRICES_N * MATRIX_N)
// Strides put the rows of a matrix into different banks, at sixteen bytes.
#if MATRIX_K % 16 == 0
#define NUMBERS 16
#define Word uvec4
#define STRIDE (WORDS | 1)
#else
#define NUMBERS 8
#define Word uvec2
#define STRIDE (WORDS + 2)
#endif
#define WORDS (BK / NUMBERS)
#define EACH(side) (((side) * WORDS + WG_X - 1) / WG_X)
#define SHARED(X) X(Word, tile_a, (BM * STRIDE)) X(Word, tile_b, (BN * STRIDE)) \
  X(int, patches, (SUBGROUPS_M * SUBGROUPS_N * MATRIX_M * MATRIX_N))

// The place of the invocation's load e in a tile: row and word.
FN uvec2 place_of(int e, int side) {
  uint at = uint(LOCAL_ID(0) + e * WG_X);
  if (side * WORDS % WG_X != 0) at = min(at, uint(side * WORDS - 1));
  return uvec2(at / uint(WORDS), at % uint(WORDS));
}
// Without a guard, which would wait for the load: words beyond the matrix are read at its edge. `first` has the word of each load
// at step 0, for whole steps at its own step.
#if WIDE
#if NUMBERS == 16
#define WORD_AT(name, at) Word(LOAD_WORD(name, at))
#else
#define WORD_AT(name, at) Word(LOAD(name, 2 * (at)), LOAD(name, 2 * (at) + 1))
#endif
#define DECLARE_FIRST(first, side, r0, rows)                                                    \
  int first[EACH(side)];                                                                        \
  UNROLL for (int e = 0; e < EACH(side); ++e) {                                                 \
    ivec2 mesh_place = ivec2(place_of(e, side));                                                \
    first[e] = IMIN((r0) + mesh_place.x, (rows) - 1) * int(uint(k) / uint(NUMBERS)) + WHOLE_STEPS * mesh_place.y; \
  }
#if WHOLE_STEPS
#define STEP_OF(e, side, k_at) int(uint(k_at) / uint(NUMBERS))
#else
#define STEP_OF(e, side, k_at) IMIN(int(uint(k_at) / uint(NUMBERS)) + int(place_of(e, side).y), int(uint(k) / uint(NUMBERS)) - 1)
#endif
#define FETCH_TILE(next, first, side, name, r0, rows, k_at) \
  UNROLL for (int e = 0; e < EACH(side); ++e) next[e] = WORD_AT(name, first[e] + STEP_OF(e, side, k_at));
#else
#define DECLARE_FIRST(first, side, r0, rows)
#define FETCH_TILE(next, first, side, name, r0, rows, k_at)                                              \
  UNROLL for (int e = 0; e < EACH(side); ++e) {                                                          \
    ivec2 mesh_place = ivec2(place_of(e, side));                                                         \
    next[e] = Word(0u);                                                                                  \
    if ((r0) + mesh_place.x < (rows)) {                                                                  \
      UNROLL for (int mesh_i = 0; mesh_i < NUMBERS; ++mesh_i) {                                          \
        int mesh_step = (k_at) + mesh_place.y * NUMBERS + mesh_i;                                        \
        int mesh_at = ((r0) + mesh_place.x) * k + mesh_step;                                             \
        if (mesh_step < k)                                                                               \
          next[e][mesh_i / 4] |= uint(LOAD(name, mesh_at / 4) >> (mesh_at % 4 * 8) & 255) << (8 * (mesh_i % 4)); \
      }                                                                                                  \
    }                                                                                                    \
  }
#endif
#define WRITE_TILE(next, tile, side, k_at)                                                      \
  UNROLL for (int e = 0; e < EACH(side); ++e) {                                                 \
    ivec2 mesh_place = ivec2(place_of(e, side));                                                \
    if ((side) * WORDS % WG_X == 0 || LOCAL_ID(0) + e * WG_X < (side) * WORDS)                  \
      tile[mesh_place.x * STRIDE + mesh_place.y] =                                              \
          WHOLE_STEPS != 0 || (k_at) + mesh_place.y * NUMBERS < k ? next[e] : Word(0u);         \
  }
#define WRITE_TILES(k_at)                                                                       \
  BARRIER();                                                                                    \
  WRITE_TILE(next_a, tile_a, BM, k_at)                                                          \
  WRITE_TILE(next_b, tile_b, BN, k_at)                                                          \
  BARRIER();

// Its elements are finished in an unrolled loop, or compilers leave the loops around it as they are too and keep the sums in memory.
// ROLLED: matrices are written out instead, since ANV would keep rows and scales of all elements in registers.
#ifdef ROLLED
#define UNROLL_ELEMENTS DONT_UNROLL
#else
#define UNROLL_ELEMENTS UNROLL
#endif
#define FINISH_MATRIX(r, s)                                                                     \
  {                                                                                             \
    BARRIER();                                                                                  \
    coopMatStoreNV(sums[(r) * MATRICES_N + (s)], patches, patch_at, MATRIX_N, false);           \
    BARRIER();                                                                                  \
    UNROLL_ELEMENTS for (int q = 0; q < MATRIX_M * MATRIX_N; q += LANES_OF_SUBGROUP) {          \
      int e = q + lane;                                                                         \
      int row = m0 + m_own + (r) * MATRIX_M + e / MATRIX_N;                                     \
      int column = n0 + n_own + (s) * MATRIX_N + e % MATRIX_N;                                  \
      if (row < m && column < n && (MATRIX_M * MATRIX_N % LANES_OF_SUBGROUP == 0 || e < MATRIX_M * MATRIX_N)) { \
        float value = TO_FLOAT(patches[patch_at + e]) * LOAD(a_scales, row) * LOAD(b_scales, column); \
        if (with_bias != 0) value += LOAD(bias, column);                                        \
        STORE(c, row * n + column, value);                                                      \
      }                                                                                         \
    }                                                                                           \
  }
#ifdef ROLLED
#if MATRICES_M == 3 || MATRICES_M > 4 || (MATRICES_N != 1 && MATRICES_N != 2 && MATRICES_N != 4 && MATRICES_N != 8)
#error ROLLED has 1, 2 or 4 rows of 1, 2, 4 or 8 matrices.
#endif
#define FINISH_EACH(r, s) FINISH_MATRIX(IMIN(r, MATRICES_M - 1), IMIN(s, MATRICES_N - 1))
#define FINISH_ROW(r)                                                                           \
  FINISH_EACH(r, 0)                                                                             \
  if (MATRICES_N > 1) FINISH_EACH(r, 1)                                                         \
  if (MATRICES_N > 2) { FINISH_EACH(r, 2) FINISH_EACH(r, 3) }                                   \
  if (MATRICES_N > 4) { FINISH_EACH(r, 4) FINISH_EACH(r, 5) FINISH_EACH(r, 6) FINISH_EACH(r, 7) }
#endif

KERNEL_BEGIN
  int n0 = GROUP_ID(0) * BN;
  int m0 = GROUP_ID(1) * BM;
  int own = int(gl_SubgroupID);
  int lane = int(gl_SubgroupInvocationID);
  int m_own = own / SUBGROUPS_N * MATRICES_M * MATRIX_M;
  int n_own = own % SUBGROUPS_N * MATRICES_N * MATRIX_N;
  Word next_a[EACH(BM)];
  Word next_b[EACH(BN)];
  DECLARE_FIRST(first_a, BM, m0, m)
  DECLARE_FIRST(first_b, BN, n0, n)
  MatrixSum sums[MATRICES_M * MATRICES_N];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N; ++e) sums[e] = FIRST_SUM;
  FETCH_TILE(next_a, first_a, BM, a, m0, m, 0)
  FETCH_TILE(next_b, first_b, BN, b, n0, n, 0)
#ifdef ROLLED
  WRITE_TILES(0)
#endif
  for (int k0 = 0; k0 < k; k0 += BK) {
#ifndef ROLLED
    WRITE_TILES(k0)
#endif
    // Behind the last step the last one is loaded again: a branch around the loads would wait for them.
    int k_next = WHOLE_STEPS != 0 ? IMIN(k0 + BK, k - BK) : k0 + BK;
    FETCH_TILE(next_a, first_a, BM, a, m0, m, k_next)
    FETCH_TILE(next_b, first_b, BN, b, n0, n, k_next)
#ifdef ROLLED
    MatrixA x[MATRICES_M];
    UNROLL for (int i = 0; i < MATRICES_M; ++i)
      coopMatLoadNV(x[i], tile_a, (m_own + i * MATRIX_M) * STRIDE, STRIDE, false);
    UNROLL for (int s = 0; s < MATRICES_N; ++s) {
      MatrixB y;
      coopMatLoadNV(y, tile_b, (n_own + s * MATRIX_N) * STRIDE, STRIDE, true);
      UNROLL for (int r = 0; r < MATRICES_M; ++r)
        sums[r * MATRICES_N + s] = coopMatMulAddNV(x[r], y, sums[r * MATRICES_N + s]);
    }
    // Within the iteration: ANV holds what one leaves to the next for all of the loop.
    WRITE_TILES(k0 + BK)
#else
    UNROLL for (int j = 0; j < BK; j += MATRIX_K) {
      // Keeps the loads of a step behind the products of the one before, whose registers they take.
      if (j > 0) subgroupBarrier();
      MatrixA x[MATRICES_M];
      MatrixB y[MATRICES_N];
      UNROLL for (int i = 0; i < MATRICES_M; ++i)
        coopMatLoadNV(x[i], tile_a, (m_own + i * MATRIX_M) * STRIDE + j / NUMBERS, STRIDE, false);
      UNROLL for (int i = 0; i < MATRICES_N; ++i)
        coopMatLoadNV(y[i], tile_b, (n_own + i * MATRIX_N) * STRIDE + j / NUMBERS, STRIDE, true);
      UNROLL for (int r = 0; r < MATRICES_M; ++r)
        UNROLL for (int s = 0; s < MATRICES_N; ++s) sums[r * MATRICES_N + s] = coopMatMulAddNV(x[r], y[s], sums[r * MATRICES_N + s]);
    }
#endif
  }
  // Which invocation holds which element is the driver's secret: each matrix goes through workgroup memory.
  int patch_at = own * MATRIX_M * MATRIX_N;
#ifdef ROLLED
  FINISH_ROW(0)
  if (MATRICES_M > 1) { FINISH_ROW(1) }
  if (MATRICES_M > 2) { FINISH_ROW(2) FINISH_ROW(3) }
#else
  UNROLL for (int r = 0; r < MATRICES_M; ++r) {
    UNROLL for (int s = 0; s < MATRICES_N; ++s) FINISH_MATRIX(r, s)
  }
#endif
KERNEL_END
