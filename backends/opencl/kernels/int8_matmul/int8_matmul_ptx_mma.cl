// Exact products of eight-bit integers on NVIDIA's tensor cores (mma.inc), as matmul_ptx_mma.cl's of 16-bit floats: a workgroup of
// SUBGROUPS_M x SUBGROUPS_N warps computes BM x BN of C, a warp MATRICES_M x MATRICES_N matrices of 16 x 8, and workgroup memory has
// room for STAGES tiles of A and B. Two bytes that are neighbours along K take an element's place there.
// ASYNC: rows are multiples of 16 bytes, and come by copies that do not wait.
#include "int8_operands.inc"
#include "mma.inc"
#include "mma_tile.inc"
#include "store_patch.inc"
#include "tile_order.inc"

#define WIDTH (BK / 16)
#define CHUNKS_A (BM * WIDTH)
#define CHUNKS_B (BN * WIDTH)

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
#define FIND_STAGES()                                                 \
  EACH(e, CHUNKS_A) chunks_a[e] = (uint)(ROW_AT(e, m0, m) * k + own_column); \
  EACH(e, CHUNKS_B) chunks_b[e] = (uint)(ROW_AT(e, n0, n) * k + own_column);
#define LOAD_A LOAD_MATRICES
#define LOAD_B LOAD_MATRICES
#define AT_A(i, s) (at_a[s] + (i) * 16 * WIDTH * 16)
#define AT_B(j, s) (at_b[s] + (j) * 16 * WIDTH * 16)

KERNEL_BEGIN
  OWN_TILE(BM, BN)
  NO_RESIDUAL()
  const int k_first = 0, k_last = k;
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
#include "mma_loop.inc"
KERNEL_END
