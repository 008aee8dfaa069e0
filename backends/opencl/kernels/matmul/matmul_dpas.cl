// Matmul of 16-bit floats on the matrix units of Intel's GPUs (dpas.inc). A workgroup of SUBGROUPS_M x SUBGROUPS_N subgroups computes
// BM x BN of C, a subgroup MATRICES_M x MATRICES_N matrices of 8 x MATRIX_N. Tiles of A and B, BK deep, go through workgroup
// memory, which has room for two of each: while one is multiplied the next is on its way in registers.
// WIDE_A, WIDE_B: rows in device memory are multiples of eight elements. WHOLE_STEPS: K is a multiple of BK.
//
// A tile consists of the unit's blocks, each of which is loaded as a whole: those of a band of 8 rows of A, or of MATRIX_N columns of B,
// one behind another along K. In a word two steps of K are neighbours, so an operand that lies the other way in device memory is
// loaded by pairs of rows: PAIRED_A, PAIRED_B.
#include "matmul_bindings.inc"
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end)
#define PATCH_ROWS 8
#define PATCH_LANES MATRIX_N
#include "matmul_epilogue.inc"
#include "dpas.inc"
#include "eight.inc"
#include "store_patch.inc"
#include "tile_order.inc"

#define OWN_M (MATRICES_M * 8)
#define OWN_N (MATRICES_N * MATRIX_N)
#define BM (SUBGROUPS_M * OWN_M)
#define BN (SUBGROUPS_N * OWN_N)
#define PAIRED_A TRANS_A
#define PAIRED_B (1 - TRANS_B)
#define BLOCK_A 64
#define BLOCK_B (8 * MATRIX_N)
// Words from one band to the next. With the padding, stores to several bands go to different banks.
#define BAND_A (BK / 16 * BLOCK_A + 8)
#define BAND_B (BK / 16 * BLOCK_B + 8)
#define WORDS_A (BM / 8 * BAND_A)
#define WORDS_B (BN / MATRIX_N * BAND_B)
// At the end eight rows of each subgroup's sums stand in the tiles' place.
#define PATCH_ROW (OWN_N + 8)
#define PATCH_WORDS (SUBGROUPS_M * SUBGROUPS_N * 8 * PATCH_ROW)
#define TILE_WORDS (2 * (WORDS_A + WORDS_B))
#define SHARED(X) X(uint4, tiles, (TILE_WORDS > PATCH_WORDS ? TILE_WORDS : PATCH_WORDS) / 4) DPAS_SHARED(X)

// What an invocation carries of a tile of `side` rows or columns: items of eight elements of a row along K, or of two rows of
// eight elements across it. Of PAIRED_A, neighbouring invocations have QUAD chunks of a row of device memory each, so that both
// loads and stores go to neighbours.
#define ITEMS_OF(paired, side) ((side) * BK / (8 + 8 * (paired)))
#define ITEMS(paired, side) ((ITEMS_OF(paired, side) + WG_X - 1) / WG_X)
#define EACH(e, paired, side) \
  UNROLL for (int e = 0; e < ITEMS(paired, side); ++e) if (ITEMS_OF(paired, side) % WG_X == 0 || OWN_ITEM(e) < ITEMS_OF(paired, side))
#define OWN_ITEM(e) (LOCAL_ID(0) + (e) * WG_X)
#define ROW_OF(e) (OWN_ITEM(e) / (BK / 8))
#define CHUNK_OF(e) (OWN_ITEM(e) % (BK / 8))
#define QUAD(side) ((side) / 8 < 4 ? (side) / 8 : 4)
#define PAIR_OF(e, side, quad) (OWN_ITEM(e) / (quad) % (BK / 2))
#define GROUP_OF(e, side, quad) (OWN_ITEM(e) / ((quad) * (BK / 2)) * (quad) + OWN_ITEM(e) % (quad))
// Rows and columns beyond the end are others again, whose sums are not written; steps beyond it are 0.
#define FETCH_TILE(next, from, paired, quad, wide, side, first, end, k_at, stride)                                     \
  EACH(e, paired, side) {                                                                                            \
    if (paired) {                                                                                                    \
      const int row = (k_at) + 2 * PAIR_OF(e, side, quad);                                                           \
      const int chunk = (first) + 8 * GROUP_OF(e, side, quad), column = (wide) ? IMIN(chunk, (end) - 8) : chunk;     \
      next[2 * e] = eight(from + row * (stride), column, end, wide, WHOLE_STEPS || row < k_last);                    \
      next[2 * e + 1] = eight(from + (row + 1) * (stride), column, end, wide, WHOLE_STEPS || row + 1 < k_last);      \
    } else {                                                                                                         \
      const int column = (k_at) + 8 * CHUNK_OF(e);                                                                   \
      next[e] = eight(from + IMIN((first) + ROW_OF(e), (end) - 1) * (stride), column, k_last, wide,                  \
                      WHOLE_STEPS || column < k_last);                                                               \
    }                                                                                                                \
  }
#define LOW_HALVES(x, y) (((x) & 0xffffu) | (y) << 16)
#define HIGH_HALVES(x, y) ((x) >> 16 | ((y) & 0xffff0000u))
#define FETCH(k_at)                                                                             \
  FETCH_TILE(next_a, a, PAIRED_A, QUAD(BM), WIDE_A, BM, m0, m, k_at, TRANS_A ? m : k)             \
  FETCH_TILE(next_b, b, PAIRED_B, BN / 8, WIDE_B, BN, n0, n, k_at, TRANS_B ? k : n)
#define PUT(stage)                                                                                                     \
  {                                                                                                                    \
    __local uint *tile_a = (__local uint *)tiles + (stage) * (WORDS_A + WORDS_B), *tile_b = tile_a + WORDS_A;            \
    EACH(e, PAIRED_A, BM) PUT_A(tile_a, next_a, e)                                                                     \
    EACH(e, PAIRED_B, BN) PUT_B(tile_b, next_b, e)                                                                     \
  }
#if PAIRED_A
// Eight rows of A, of each a word.
#define PUT_A(tile, next, e)                                                                                           \
  {                                                                                                                    \
    const int pair = PAIR_OF(e, BM, QUAD(BM));                                                                         \
    __local uint *own = (tile) + GROUP_OF(e, BM, QUAD(BM)) * BAND_A + pair / 8 * BLOCK_A + pair % 8;                   \
    const uint x[4] = {next[2 * e].x, next[2 * e].y, next[2 * e].z, next[2 * e].w};                                    \
    const uint y[4] = {next[2 * e + 1].x, next[2 * e + 1].y, next[2 * e + 1].z, next[2 * e + 1].w};                    \
    UNROLL for (int i = 0; i < 4; ++i) {                                                                               \
      own[16 * i] = LOW_HALVES(x[i], y[i]);                                                                            \
      own[16 * i + 8] = HIGH_HALVES(x[i], y[i]);                                                                       \
    }                                                                                                                  \
  }
#else
#define PUT_A(tile, next, e)                                                                                           \
  *(__local uint4 *)((tile) + ROW_OF(e) / 8 * BAND_A + CHUNK_OF(e) / 2 * BLOCK_A + ROW_OF(e) % 8 * 8 + CHUNK_OF(e) % 2 * 4) = next[e];
#endif
#if PAIRED_B
// Eight columns of B, neighbours in a row of a block.
#define PUT_B(tile, next, e)                                                                                           \
  {                                                                                                                    \
    const int pair = PAIR_OF(e, BN, BN / 8), column = 8 * GROUP_OF(e, BN, BN / 8);                                     \
    __local uint4 *own = (__local uint4 *)((tile) + column / MATRIX_N * BAND_B + pair * MATRIX_N + column % MATRIX_N); \
    const uint4 x = next[2 * e], y = next[2 * e + 1], low = LOW_HALVES(x, y), high = HIGH_HALVES(x, y);                \
    own[0] = (uint4)(low.x, high.x, low.y, high.y);                                                                    \
    own[1] = (uint4)(low.z, high.z, low.w, high.w);                                                                    \
  }
#else
#define PUT_B(tile, next, e)                                                                                           \
  {                                                                                                                    \
    __local uint *own = (tile) + ROW_OF(e) / MATRIX_N * BAND_B + CHUNK_OF(e) * 4 * MATRIX_N + ROW_OF(e) % MATRIX_N;    \
    own[0] = next[e].x;                                                                                                \
    own[MATRIX_N] = next[e].y;                                                                                         \
    own[2 * MATRIX_N] = next[e].z;                                                                                     \
    own[3 * MATRIX_N] = next[e].w;                                                                                     \
  }
#endif
// Not a loop, which Debian 12's compiler does not unroll: it would keep all sums in memory.
#define FINISH_ROWS(i)                                                              \
  {                                                                                 \
    UNROLL for (int j = 0; j < MATRICES_N; ++j) {                                   \
      const float8 sum = sums[(i) * MATRICES_N + j];                                \
      PUT_ROW(0, s0) PUT_ROW(1, s1) PUT_ROW(2, s2) PUT_ROW(3, s3)                   \
      PUT_ROW(4, s4) PUT_ROW(5, s5) PUT_ROW(6, s6) PUT_ROW(7, s7)                   \
    }                                                                               \
    SUBGROUP_FENCE();                                                               \
    STORE_PATCH(patch, PATCH_ROW, OWN_N, m0 + m_own + 8 * (i), n0 + n_own)          \
    SUBGROUP_FENCE();                                                               \
  }
#define PUT_ROW(row, component) patch[(row) * PATCH_ROW + j * MATRIX_N + lane] = sum.component;

KERNEL_BEGIN
  OWN_TILE(BM, BN)
  const int lane = LANE, subgroup = OWN_SUBGROUP;
  const int m_own = subgroup / SUBGROUPS_N * OWN_M, n_own = subgroup % SUBGROUPS_N * OWN_N;
  OWN_K_RANGE(BK)
  a += batch * m * k;
  b += batch * k * n;
  float8 sums[MATRICES_M * MATRICES_N];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N; ++e) sums[e] = (float8)(0.0f);
  uint4 next_a[ITEMS(PAIRED_A, BM) * (1 + PAIRED_A)], next_b[ITEMS(PAIRED_B, BN) * (1 + PAIRED_B)];
  FETCH(k_first)
  PUT(0)
  BARRIER();
  int stage = 0;
  for (int k0 = k_first; k0 < k_last; k0 += BK) {
    // The last step fetches once more what nobody reads, which costs less than a branch in every step.
    const int k_next = WHOLE_STEPS ? IMIN(k0 + BK, k_last - BK) : k0 + BK;
    const int at_a = stage * (WORDS_A + WORDS_B) + m_own / 8 * BAND_A;
    const int at_b = stage * (WORDS_A + WORDS_B) + WORDS_A + n_own / MATRIX_N * BAND_B;
    UNROLL for (int s = 0; s < BK / 16; ++s) {
      BLOCKS_A(x, MATRICES_M);
      BLOCKS_B(y, MATRICES_N);
      UNROLL for (int i = 0; i < MATRICES_M; ++i) LOAD_A(x[i], tiles, at_a + i * BAND_A + s * BLOCK_A)
      UNROLL for (int j = 0; j < MATRICES_N; ++j) LOAD_B(y[j], tiles, at_b + j * BAND_B + s * BLOCK_B)
      if (s == 0) { FETCH(k_next) }
      UNROLL for (int i = 0; i < MATRICES_M; ++i)
        UNROLL for (int j = 0; j < MATRICES_N; ++j) DPAS(sums[i * MATRICES_N + j], x[i], y[j])
    }
    stage = 1 - stage;
    // Who still reads the other tiles has not passed the last barrier.
    PUT(stage)
    BARRIER();
  }
  // Neighbours in C are neighbouring lanes' work: whole lines are written.
  __local float *patch = (__local float *)tiles + subgroup * 8 * PATCH_ROW;
  FINISH_ROWS(0)
#if MATRICES_M > 1
  FINISH_ROWS(1)
#endif
#if MATRICES_M > 2
  FINISH_ROWS(2)
  FINISH_ROWS(3)
#endif
KERNEL_END
