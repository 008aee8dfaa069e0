// Matmul of 16-bit floats on the matrix units of Intel's GPUs (dpas.inc). A workgroup of SUBGROUPS_M x SUBGROUPS_N subgroups computes
// BM x BN of C, a subgroup MATRICES_M x MATRICES_N matrices of 8 x MATRIX_N. Tiles of A and B, BK deep, go through workgroup
// memory, which has room for two of each: while one is multiplied the next is on its way in registers.
// WIDE_A, WIDE_B: rows in device memory are multiples of eight elements. WHOLE_STEPS: K is a multiple of BK.
// PAIRED_A, PAIRED_B: the operand lies across K in device memory (dpas_tile.inc).
#include "matmul_bindings.inc"
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end) \
  MORE_CONSTANTS(X)
#include "matmul_epilogue.inc"
#define DEPTH BK
#include "dpas.inc"
#include "dpas_tile.inc"
#include "eight.inc"
#include "dpas_finish.inc"
#include "tile_order.inc"

#define PAIRED_A TRANS_A
#define PAIRED_B (1 - TRANS_B)

// Rows and columns beyond the end are others again, whose sums are not written; steps beyond it are 0.
#define FETCH_TILE(next, from, paired, quad, wide, side, first, end, k_at, stride)                                     \
  EACH_ITEM(e, paired, side, BK) {                                                                                     \
    const int item = OWN_ITEM(e, paired, side, BK);                                                                    \
    if (paired) {                                                                                                      \
      const int row = (k_at) + 2 * PAIR_OF(item, quad, BK);                                                            \
      const int chunk = (first) + 8 * GROUP_OF(item, quad, BK), column = (wide) ? IMIN(chunk, (end) - 8) : chunk;      \
      next[2 * e] = eight(from + STEP_AT(row) * (stride), column, end, wide, IS_STEP(row));                            \
      next[2 * e + 1] = eight(from + STEP_AT(row + 1) * (stride), column, end, wide, IS_STEP(row + 1));                \
    } else {                                                                                                           \
      const int column = (k_at) + 8 * CHUNK_OF(item, BK);                                                              \
      next[e] = eight(from + IMIN((first) + ROW_OF(item, BK), (end) - 1) * (stride), column, k_last, wide,             \
                      WHOLE_STEPS || column < k_last);                                                                 \
    }                                                                                                                  \
  }
// The steps of a group end anywhere: those behind it are loaded from its last one and become 0 before they go into the tile, because
// what a load finds would be waited for where another value may take its place.
#if GROUPED == 2
#define STEP_AT(row) IMIN(row, step_last)
#define IS_STEP(row) true
#define CLEAR_STEPS(next, quad, side, k_at)                                   \
  EACH_ITEM(e, true, side, BK) {                                              \
    const int row = (k_at) + 2 * PAIR_OF(OWN_ITEM(e, true, side, BK), quad, BK); \
    if (row >= k_last) next[2 * e] = (uint4)(0u);                             \
    if (row + 1 >= k_last) next[2 * e + 1] = (uint4)(0u);                     \
  }
#define CLEAR(k_at)                          \
  CLEAR_STEPS(next_a, QUAD_A(BM), BM, k_at)  \
  CLEAR_STEPS(next_b, BN / 8, BN, k_at)
#else
#define STEP_AT(row) (row)
#define IS_STEP(row) (WHOLE_STEPS || (row) < k_last)
#define CLEAR(k_at)
#endif
#define FETCH(k_at)                                                                             \
  FETCH_TILE(next_a, a, PAIRED_A, QUAD_A(BM), WIDE_A, BM, m0, m, k_at, TRANS_A ? m : k)         \
  FETCH_TILE(next_b, b, PAIRED_B, BN / 8, WIDE_B, BN, n0, n, k_at, TRANS_B ? k : n)
#define PUT(stage)                                                                                                     \
  {                                                                                                                    \
    __local uint *tile_a = (__local uint *)tiles + (stage) * (WORDS_A + WORDS_B), *tile_b = tile_a + WORDS_A;            \
    EACH_ITEM(e, PAIRED_A, BM, BK) PUT_A(tile_a, next_a, e, OWN_ITEM(e, PAIRED_A, BM, BK))                             \
    EACH_ITEM(e, PAIRED_B, BN, BK) PUT_B(tile_b, next_b, e, OWN_ITEM(e, PAIRED_B, BN, BK))                             \
  }
#if PAIRED_A
#define PUT_A(tile, next, e, item) PUT_PAIR_OF_A(tile, item, next[2 * e], next[2 * e + 1], QUAD_A(BM), BK)
#else
#define PUT_A(tile, next, e, item) PUT_ROW_OF_A(tile, item, next[e], BK)
#endif
#if PAIRED_B
// Eight columns of B, neighbours in a row of a block.
#define PUT_B(tile, next, e, item)                                                                                        \
  {                                                                                                                    \
    const int pair = PAIR_OF(item, BN / 8, BK), column = 8 * GROUP_OF(item, BN / 8, BK);                                     \
    __local uint4 *own = (__local uint4 *)((tile) + column / MATRIX_N * BAND_B(BK) + pair * MATRIX_N + column % MATRIX_N); \
    const uint4 x = next[2 * e], y = next[2 * e + 1], low = LOW_HALVES(x, y), high = HIGH_HALVES(x, y);                \
    own[0] = (uint4)(low.x, high.x, low.y, high.y);                                                                    \
    own[1] = (uint4)(low.z, high.z, low.w, high.w);                                                                    \
  }
#else
#define PUT_B(tile, next, e, item) PUT_ROW_OF_B(tile, item, next[e], BK)
#endif
KERNEL_BEGIN
  OWN_TILE(BM, BN)
  const int lane = LANE, subgroup = OWN_SUBGROUP;
  const int m_own = subgroup / SUBGROUPS_N * OWN_M, n_own = subgroup % SUBGROUPS_N * OWN_N;
  OWN_K_RANGE(BK)
  OWN_STEPS
  a += BASE_A;
  b += BASE_B;
  SUMS sums[MATRICES_M * MATRICES_N];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N; ++e) sums[e] = (SUMS)(0);
  uint4 next_a[ITEMS(PAIRED_A, BM, BK) * (1 + PAIRED_A)], next_b[ITEMS(PAIRED_B, BN, BK) * (1 + PAIRED_B)];
#if GROUPED == 2
  const int step_last = IMAX(k_last, 1) - 1;
#endif
#include "dpas_loop.inc"
KERNEL_END
