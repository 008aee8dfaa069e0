// Matmul of 16-bit floats on NVIDIA's tensor cores (mma.inc). A workgroup of SUBGROUPS_M x SUBGROUPS_N warps, 32 neighbours
// each, computes BM x BN of C, a warp MATRICES_M x MATRICES_N matrices of 16 x 8. Tiles of A and B, BK deep, go through
// workgroup memory, which has room for STAGES of each: while one is multiplied the next are on their way, with ASYNC by copies that
// do not wait, else the next one in registers.
// WIDE_A, WIDE_B: rows in device memory are multiples of eight elements. WHOLE_STEPS: K is a multiple of BK.
//
// A tile lies as its matrix does in device memory, in chunks of eight neighbours, which is also what a lane loads and stores and
// what a row of the unit's 8 x 8 matrices is; those that do not run along K are transposed as they are loaded.
#include "matmul_bindings.inc"
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end) \
  MORE_CONSTANTS(X)
#include "matmul_epilogue.inc"
#include "eight.inc"
#include "k_steps.inc"
#include "mma.inc"
#include "mma_tile.inc"
#include "store_patch.inc"
#include "tile_order.inc"

#define CHUNKS_A (BM * BK / 8)
#define CHUNKS_B (BN * BK / 8)

// The number of chunks in a row of a tile of `rows` rows or columns.
#define WIDTH(along_k, rows) ((along_k) ? BK / 8 : (rows) / 8)

// What this invocation carries of a tile's `rows` from `first` on: from device memory, and into the tile. Rows and columns beyond
// the end are others again, whose sums are not written; steps beyond it are 0.
#define FETCH_TILE(next, from, along_k, wide, rows, first, end, k_at, stride)                                              \
  EACH(e, (rows) * BK / 8) {                                                                                           \
    const int row = LOCAL_ID(0) / WIDTH(along_k, rows) + e * (WG_X / WIDTH(along_k, rows));                            \
    const int column = LOCAL_ID(0) % WIDTH(along_k, rows) * 8;                                                         \
    next[e] = (along_k) ? eight(from + IMIN((first) + row, (end) - 1) * (stride), (k_at) + column, k_last, wide,       \
                                WHOLE_STEPS || (k_at) + column < k_last)                                               \
                        : eight(from + ((k_at) + row) * (stride), (wide) ? IMIN((first) + column, (end) - 8) : (first) + column, \
                                end, wide, WHOLE_STEPS || (k_at) + row < k_last);                                      \
  }
#define PUT_TILE(tile, next, along_k, rows)                                                                                \
  {                                                                                                                    \
    __local uint4 *own = (tile) + PLACE(LOCAL_ID(0) / WIDTH(along_k, rows), LOCAL_ID(0) % WIDTH(along_k, rows), WIDTH(along_k, rows)); \
    EACH(e, (rows) * BK / 8) own[e * WG_X] = next[e];                                                                  \
  }
// The same by copies that do not wait; rows in device memory are multiples of eight elements. FIND_CHUNKS finds once where they stand
// at the first step of K, in bytes, since a copy whose address is computed beside it waits for the copy before.
#define FIND_CHUNKS(offsets, along_k, rows, first, end, stride)                                                       \
  EACH(e, (rows) * BK / 8) {                                                                                        \
    const int row = LOCAL_ID(0) / WIDTH(along_k, rows) + e * (WG_X / WIDTH(along_k, rows));                         \
    const int column = LOCAL_ID(0) % WIDTH(along_k, rows) * 8;                                                      \
    offsets[e] = 2u * (uint)((along_k) ? IMIN((first) + row, (end) - 1) * (stride) + column                         \
                                       : row * (stride) + IMIN((first) + column, (end) - 8));                       \
  }
#define COPY_TILE(at, from, offsets, along_k, rows, k_at)                                                             \
  {                                                                                                                   \
    const uint own = 16u * PLACE(LOCAL_ID(0) / WIDTH(along_k, rows), LOCAL_ID(0) % WIDTH(along_k, rows), WIDTH(along_k, rows)); \
    EACH(e, (rows) * BK / 8) {                                                                                        \
      const int step = (along_k) ? LOCAL_ID(0) % WIDTH(along_k, rows) * 8                                             \
                                 : LOCAL_ID(0) / WIDTH(along_k, rows) + e * (WG_X / WIDTH(along_k, rows));            \
      const bool inside = WHOLE_STEPS || (k_at) + step < k_last;                                                      \
      COPY_OR_ZERO_ASYNC(tiles, (at) + own + 16u * (uint)(e * WG_X),                                                  \
                         (__global const uint4 *)(from + (inside ? offsets[e] : 0u)), inside)                         \
    }                                                                                                                 \
  }
#define COPY_STAGE(stage, k_at)                                                                                       \
  {                                                                                                                   \
    const uint at_tile = MMA_ADDRESS(tiles) + 16u * (uint)((stage) * STAGE_CHUNKS);                          \
    COPY_TILE(at_tile, from_a, chunks_a, !TRANS_A, BM, k_at)                                                          \
    COPY_TILE(at_tile + 16u * CHUNKS_A, from_b, chunks_b, TRANS_B, BN, k_at)                                          \
    NEXT_STEP()                                                                                                       \
  }
#define FIND_STAGES()                                         \
  FIND_CHUNKS(chunks_a, !TRANS_A, BM, m0, m, TRANS_A ? m : k)  \
  FIND_CHUNKS(chunks_b, TRANS_B, BN, n0, n, TRANS_B ? k : n)   \
  BEGIN_STEPS()
#define FETCH(k_at)                                                               \
  FETCH_TILE(next_a, a, !TRANS_A, WIDE_A, BM, m0, m, k_at, TRANS_A ? m : k)            \
  FETCH_TILE(next_b, b, TRANS_B, WIDE_B, BN, n0, n, k_at, TRANS_B ? k : n)
#define PUT(stage)                                                          \
  PUT_TILE(tiles + (stage) * STAGE_CHUNKS, next_a, !TRANS_A, BM)        \
  PUT_TILE(tiles + (stage) * STAGE_CHUNKS + CHUNKS_A, next_b, TRANS_B, BN)

// A lane names a row of one of four matrices of 8 x 8: of A the upper and lower rows for eight steps of K, then for eight more;
// of B eight columns for both eights of K, then eight columns more. The q-th of these are for other steps of K where the tile
// runs along K, for other rows or columns where not: what lies between two others is known without the lane.
#if TRANS_A
#define LOAD_A LOAD_TRANSPOSED
#define OWN_A(q) PLACE(lane % 8 + lane / 16 * 8, m_own / 8 + 2 * (q) + lane / 8 % 2, WIDTH(false, BM))
#define AT_A(i, s) (at_a[i] + (s) * 16 * WIDTH(false, BM) * 16)
#define PLACES_A MATRICES_M
#else
#define LOAD_A LOAD_MATRICES
#define OWN_A(q) PLACE(m_own + lane % 16, 2 * (q) + lane / 16, WIDTH(true, BM))
#define AT_A(i, s) (at_a[s] + (i) * 16 * WIDTH(true, BM) * 16)
#define PLACES_A (BK / 16)
#endif
#if TRANS_B
#define LOAD_B LOAD_MATRICES
#define OWN_B(q) PLACE(n_own + lane % 8 + lane / 16 * 8, 2 * (q) + lane / 8 % 2, WIDTH(true, BN))
#define AT_B(j, s) (at_b[s] + (j) * 16 * WIDTH(true, BN) * 16)
#define PLACES_B (BK / 16)
#else
#define LOAD_B LOAD_TRANSPOSED
#define OWN_B(q) PLACE(lane % 16, n_own / 8 + 2 * (q) + lane / 16, WIDTH(false, BN))
#define AT_B(j, s) (at_b[j] + (s) * 16 * WIDTH(false, BN) * 16)
#define PLACES_B (MATRICES_N / 2)
#endif

KERNEL_BEGIN
  OWN_TILE(BM, BN)
  const int lane = LOCAL_ID(0) % 32, warp = LOCAL_ID(0) / 32;
  const int m_own = warp / SUBGROUPS_N * WARP_M, n_own = warp % SUBGROUPS_N * WARP_N;
  OWN_K_RANGE(BK)
  OWN_STEPS
  a += BASE_A;
  b += BASE_B;
  // In bytes.
  uint at_a[PLACES_A], at_b[PLACES_B];
  UNROLL for (int q = 0; q < PLACES_A; ++q) at_a[q] = MMA_ADDRESS(tiles) + 16 * OWN_A(q);
  UNROLL for (int q = 0; q < PLACES_B; ++q) at_b[q] = MMA_ADDRESS(tiles) + 16 * (CHUNKS_A + OWN_B(q));
#include "mma_loop.inc"
KERNEL_END
