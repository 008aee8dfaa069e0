// Exact products of eight-bit integers on NVIDIA's tensor cores (mma.inc), as matmul_ptx_mma.cl's of 16-bit floats: a workgroup of
// SUBGROUPS_M x SUBGROUPS_N warps computes BM x BN of C, a warp MATRICES_M x MATRICES_N matrices of 16 x 8, and workgroup memory has
// room for STAGES tiles of A and B. Two bytes that are neighbours along K take an element's place there.
// ASYNC: rows are multiples of 16 bytes, and come by copies that do not wait.
#include "int8_operands.inc"
#include "mma.inc"
#include "mma_tile.inc"
#include "store_patch.inc"
#include "tile_order.inc"

#define WARP_M (MATRICES_M * 16)
#define WARP_N (MATRICES_N * 8)
#define BM (SUBGROUPS_M * WARP_M)
#define BN (SUBGROUPS_N * WARP_N)
#define WIDTH (BK / 16)
#define CHUNKS_A (BM * WIDTH)
#define CHUNKS_B (BN * WIDTH)
#define STAGE_CHUNKS (CHUNKS_A + CHUNKS_B)
// At the end 16 rows of each warp's sums stand in the tiles' place; the padding puts them into different banks.
#define PATCH_ROW (WARP_N + 8)
#define PATCH_CHUNKS (SUBGROUPS_M * SUBGROUPS_N * 16 * PATCH_ROW / 4)
#define TILE_CHUNKS (STAGES * STAGE_CHUNKS)
#define SHARED(X) X(uint4, tiles, (TILE_CHUNKS > PATCH_CHUNKS ? TILE_CHUNKS : PATCH_CHUNKS)) MMA_SHARED(X)

// What this invocation brings of a tile: a chunk of own_column and of each row that is a multiple of WG_X / WIDTH from own_row. Rows
// beyond the end are others again, whose sums are not written; steps beyond it are 0.
#define ROW_AT(e, first, end) IMIN((first) + own_row + (e) * (WG_X / WIDTH), (end) - 1)
#define FETCH(k_at)                                                                                          \
  EACH(e, CHUNKS_A) next_a[e] = sixteen(a + ROW_AT(e, m0, m) * k, (k_at) + own_column, k);                    \
  EACH(e, CHUNKS_B) next_b[e] = sixteen(b + ROW_AT(e, n0, n) * k, (k_at) + own_column, k);
#define PUT(stage)                                                                                           \
  {                                                                                                          \
    __local uint4 *own = tiles + (stage) * STAGE_CHUNKS + own_place;                                         \
    EACH(e, CHUNKS_A) own[e * WG_X] = next_a[e];                                                             \
    EACH(e, CHUNKS_B) own[CHUNKS_A + e * WG_X] = next_b[e];                                                  \
  }
// The same by copies. Where they begin in device memory is found once, since a copy whose address is computed beside it waits for the
// copy before.
#define COPY_TILE(at, from, chunks, count, k_at)                                                             \
  EACH(e, count)                                                                                             \
    COPY_OR_ZERO_ASYNC(tiles, (at) + 16u * (uint)(e * WG_X),                                                 \
                       (__global const uint4 *)((from) + (inside ? chunks[e] + (uint)(k_at) : 0u)), inside)
#define COPY_STAGE(stage, k_at)                                                                              \
  {                                                                                                          \
    const uint at = MMA_ADDRESS(tiles) + 16u * (uint)((stage) * STAGE_CHUNKS + own_place);                   \
    const bool inside = WHOLE_STEPS || (k_at) + own_column < k;                                              \
    COPY_TILE(at, a, chunks_a, CHUNKS_A, k_at)                                                               \
    COPY_TILE(at + 16u * CHUNKS_A, b, chunks_b, CHUNKS_B, k_at)                                              \
  }

KERNEL_BEGIN
  OWN_TILE(BM, BN)
  NO_RESIDUAL()
  const int lane = LOCAL_ID(0) % 32, warp = LOCAL_ID(0) / 32;
  const int m_own = warp / SUBGROUPS_N * WARP_M, n_own = warp % SUBGROUPS_N * WARP_N;
  const int own_row = LOCAL_ID(0) / WIDTH, own_column = LOCAL_ID(0) % WIDTH * 16;
  const int own_place = PLACE(own_row, LOCAL_ID(0) % WIDTH, WIDTH);
  // A lane names a row of one of four matrices of 8 x 8 pairs: of A the upper and lower rows for 16 steps of K, then for 16 more; of B
  // eight columns for both halves of 32 steps, then eight columns more. In bytes.
  uint at_a[BK / 32], at_b[BK / 32];
  UNROLL for (int q = 0; q < BK / 32; ++q) {
    at_a[q] = MMA_ADDRESS(tiles) + 16 * PLACE(m_own + lane % 16, 2 * q + lane / 16, WIDTH);
    at_b[q] = MMA_ADDRESS(tiles) + 16 * (CHUNKS_A + PLACE(n_own + lane % 8 + lane / 16 * 8, 2 * q + lane / 8 % 2, WIDTH));
  }
  int sums[MATRICES_M * MATRICES_N * 4];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N * 4; ++e) sums[e] = 0;
  int stage = 0;
#if ASYNC
  uint chunks_a[ITEMS(CHUNKS_A)], chunks_b[ITEMS(CHUNKS_B)];
  EACH(e, CHUNKS_A) chunks_a[e] = (uint)(ROW_AT(e, m0, m) * k + own_column);
  EACH(e, CHUNKS_B) chunks_b[e] = (uint)(ROW_AT(e, n0, n) * k + own_column);
  UNROLL for (int s = 0; s < STAGES - 1; ++s) {
    if (s * BK < k) COPY_STAGE(s, s * BK)
    COPIES_END()
  }
#else
  uint4 next_a[ITEMS(CHUNKS_A)], next_b[ITEMS(CHUNKS_B)];
  FETCH(0)
  PUT(0)
  BARRIER();
#endif
  for (int k0 = 0; k0 < k; k0 += BK) {
#if ASYNC
    // Behind the barrier every invocation's copies of this tile have arrived, and nobody reads the tile before it any more, whose
    // place the next copies take.
    WAIT_FOR_COPIES_BUT(STAGES - 2)
    BARRIER();
    const int k_next = k0 + (STAGES - 1) * BK;
    if (k_next < k) COPY_STAGE(stage == 0 ? STAGES - 1 : stage - 1, k_next)
    COPIES_END()
#else
    // The last step fetches once more what nobody reads, which costs less than a branch in every step.
    const int k_next = WHOLE_STEPS ? IMIN(k0 + BK, k - BK) : k0 + BK;
    FETCH(k_next)
#endif
    const uint tile = stage * STAGE_CHUNKS * 16;
    UNROLL for (int s = 0; s < BK / 32; ++s) {
      uint y[MATRICES_N * 2];
      UNROLL for (int j = 0; j < MATRICES_N / 2; ++j) LOAD_MATRICES(y + 4 * j, tiles, tile + at_b[s] + j * 16 * WIDTH * 16)
      UNROLL for (int i = 0; i < MATRICES_M; ++i) {
        uint x[4];
        LOAD_MATRICES(x, tiles, tile + at_a[s] + i * 16 * WIDTH * 16)
        UNROLL for (int j = 0; j < MATRICES_N; ++j)
          MMA(sums + (i * MATRICES_N + j) * 4, x[0], x[1], x[2], x[3], y[2 * j], y[2 * j + 1])
      }
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
#if !ASYNC
    // Who still reads the other tiles has not passed the last barrier.
    PUT(stage)
    BARRIER();
#endif
  }
  // Neighbours in C are neighbouring lanes' work: whole lines are written.
  __local float *patch = (__local float *)tiles + warp * 16 * PATCH_ROW;
  UNROLL for (int i = 0; i < MATRICES_M; ++i) {
    BARRIER();
    UNROLL for (int j = 0; j < MATRICES_N; ++j) PUT_PATCH(patch, PATCH_ROW, 8 * j, sums + (i * MATRICES_N + j) * 4)
    BARRIER();
    STORE_PATCH(patch, PATCH_ROW, WARP_N, m0 + m_own + 16 * i, n0 + n_own)
  }
KERNEL_END
