// Exact products of eight-bit integers on the matrix units of Intel's GPUs (dpas.inc), as matmul_dpas.cl's of 16-bit floats: a
// workgroup of SUBGROUPS_M x SUBGROUPS_N subgroups computes BM x BN of C. Two bytes that are neighbours along K take an element's
// place in the tiles.
#include "int8_operands.inc"
#include "dpas.inc"
#include "dpas_tile.inc"
#include "dpas_finish.inc"
#include "tile_order.inc"

#define PAIRS (BK / 2)
#define WORDS_A (BM / 8 * BAND_A(PAIRS))
#define WORDS_B (BN / MATRIX_N * BAND_B(PAIRS))
#define TILE_WORDS (2 * (WORDS_A + WORDS_B))
#define SHARED(X) X(uint4, tiles, (TILE_WORDS > PATCH_WORDS ? TILE_WORDS : PATCH_WORDS) / 4) DPAS_SHARED(X)

// Rows and columns beyond the end are others again, whose sums are not written; steps beyond it are 0.
#define FETCH_TILE(next, from, side, first, end, k_at)                                                  \
  EACH_ITEM(e, 0, side, PAIRS) {                                                                        \
    const int item = OWN_ITEM(e, 0, side, PAIRS);                                                       \
    next[e] = sixteen(from + IMIN((first) + ROW_OF(item, PAIRS), (end) - 1) * k, (k_at) + 16 * CHUNK_OF(item, PAIRS), k); \
  }
#define FETCH(k_at)                       \
  FETCH_TILE(next_a, a, BM, m0, m, k_at)  \
  FETCH_TILE(next_b, b, BN, n0, n, k_at)
#define PUT(stage)                                                                                                     \
  {                                                                                                                    \
    __local uint *tile_a = (__local uint *)tiles + (stage) * (WORDS_A + WORDS_B), *tile_b = tile_a + WORDS_A;            \
    EACH_ITEM(e, 0, BM, PAIRS) PUT_ROW_OF_A(tile_a, OWN_ITEM(e, 0, BM, PAIRS), next_a[e], PAIRS)                       \
    EACH_ITEM(e, 0, BN, PAIRS) PUT_ROW_OF_B(tile_b, OWN_ITEM(e, 0, BN, PAIRS), next_b[e], PAIRS)                       \
  }

KERNEL_BEGIN
  OWN_TILE(BM, BN)
  NO_RESIDUAL()
  const int lane = LANE, subgroup = OWN_SUBGROUP;
  const int m_own = subgroup / SUBGROUPS_N * OWN_M, n_own = subgroup % SUBGROUPS_N * OWN_N;
  SUMS sums[MATRICES_M * MATRICES_N];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N; ++e) sums[e] = (SUMS)(0);
  uint4 next_a[ITEMS(0, BM, PAIRS)], next_b[ITEMS(0, BN, PAIRS)];
  FETCH(0)
  PUT(0)
  BARRIER();
  int stage = 0;
  for (int k0 = 0; k0 < k; k0 += BK) {
    // The last step fetches once more what nobody reads, which costs less than a branch in every step.
    const int k_next = WHOLE_STEPS ? IMIN(k0 + BK, k - BK) : k0 + BK;
    const int at_a = stage * (WORDS_A + WORDS_B) + m_own / 8 * BAND_A(PAIRS);
    const int at_b = stage * (WORDS_A + WORDS_B) + WORDS_A + n_own / MATRIX_N * BAND_B(PAIRS);
    UNROLL for (int s = 0; s < BK / 32; ++s) {
      BLOCKS_A(x, MATRICES_M);
      BLOCKS_B(y, MATRICES_N);
      UNROLL for (int i = 0; i < MATRICES_M; ++i) LOAD_A(x[i], tiles, at_a + i * BAND_A(PAIRS) + s * BLOCK_A)
      UNROLL for (int j = 0; j < MATRICES_N; ++j) LOAD_B(y[j], tiles, at_b + j * BAND_B(PAIRS) + s * BLOCK_B)
      if (s == 0) { FETCH(k_next) }
      UNROLL for (int i = 0; i < MATRICES_M; ++i)
        UNROLL for (int j = 0; j < MATRICES_N; ++j) DPAS(sums[i * MATRICES_N + j], x[i], y[j])
    }
    stage = 1 - stage;
    // Who still reads the other tiles has not passed the last barrier.
    PUT(stage)
    BARRIER();
  }
  FINISH_SUMS()
KERNEL_END
