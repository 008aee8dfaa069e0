// Exact products of eight-bit integers on the matrix units of Intel's GPUs (dpas.inc), as matmul_dpas.cl's of 16-bit floats: a
// workgroup of SUBGROUPS_M x SUBGROUPS_N subgroups computes BM x BN of C. Two bytes that are neighbours along K take an element's
// place in the tiles.
#include "int8_operands.inc"
// Elements of 16 bits.
#define DEPTH (BK / 2)
#include "dpas.inc"
#include "dpas_tile.inc"
#include "dpas_finish.inc"
#include "tile_order.inc"


// Rows and columns beyond the end are others again, whose sums are not written; steps beyond it are 0.
#define FETCH_TILE(next, from, side, first, end, k_at)                                                  \
  EACH_ITEM(e, 0, side, DEPTH) {                                                                        \
    const int item = OWN_ITEM(e, 0, side, DEPTH);                                                       \
    next[e] = sixteen(from + IMIN((first) + ROW_OF(item, DEPTH), (end) - 1) * k, (k_at) + 16 * CHUNK_OF(item, DEPTH), k); \
  }
#define FETCH(k_at)                       \
  FETCH_TILE(next_a, a, BM, m0, m, k_at)  \
  FETCH_TILE(next_b, b, BN, n0, n, k_at)
#define PUT(stage)                                                                                                     \
  {                                                                                                                    \
    __local uint *tile_a = (__local uint *)tiles + (stage) * (WORDS_A + WORDS_B), *tile_b = tile_a + WORDS_A;            \
    EACH_ITEM(e, 0, BM, DEPTH) PUT_ROW_OF_A(tile_a, OWN_ITEM(e, 0, BM, DEPTH), next_a[e], DEPTH)                       \
    EACH_ITEM(e, 0, BN, DEPTH) PUT_ROW_OF_B(tile_b, OWN_ITEM(e, 0, BN, DEPTH), next_b[e], DEPTH)                       \
  }
#define CLEAR(k_at)

KERNEL_BEGIN
  OWN_TILE(BM, BN)
  NO_RESIDUAL()
  const int k_first = 0, k_last = k;
  const int lane = LANE, subgroup = OWN_SUBGROUP;
  const int m_own = subgroup / SUBGROUPS_N * OWN_M, n_own = subgroup % SUBGROUPS_N * OWN_N;
  SUMS sums[MATRICES_M * MATRICES_N];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N; ++e) sums[e] = (SUMS)(0);
  uint4 next_a[ITEMS(0, BM, DEPTH)], next_b[ITEMS(0, BN, DEPTH)];
#include "dpas_loop.inc"
KERNEL_END
