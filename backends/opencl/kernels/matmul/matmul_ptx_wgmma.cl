// Matmul of 16-bit floats on the tensor cores of NVIDIA's compute capability 9.0 (wgmma.inc). A workgroup computes BM x BN of C:
// CONSUMERS warpgroups multiply, each BLOCKS blocks of 64 rows with all columns, and one more, the producer, brings the tiles
// of A and B, 64 deep, by copies that do not wait. STAGES tiles of each have room. `full` says that a tile has arrived, `empty` that
// nobody reads it any more.
// WHOLE_STEPS: K is a multiple of 64.
#include "matmul_bindings.inc"
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end) \
  MORE_CONSTANTS(X)
#include "matmul_epilogue.inc"
#include "k_steps.inc"
#include "mma.inc"
#include "wgmma.inc"
#include "store_patch.inc"
#include "tile_order.inc"

#define BK 64
#define BM (CONSUMERS * BLOCKS * 64)
#define LOADERS 128
// A loader brings a chunk of each sixteenth row.
#define ROUNDS_A (BM / 16)
#define ROUNDS_B (BN / 16)
#define BYTES_A (BM * 128)
#define BYTES_B (BN * 128)
// At the end 16 rows of each warp's sums stand in the tiles' place; the padding puts them into different banks.
#define PATCH_ROW (BN + 8)
#define PATCH_BYTES (CONSUMERS * 4 * 16 * PATCH_ROW * 4)
#define TILE_BYTES (STAGES * (BYTES_A + BYTES_B))
typedef struct {
  uint4 rows[64];
} __attribute__((aligned(1024))) EightRows;
#define SHARED(X)                                                                                             \
  X(EightRows, eight_rows, ((TILE_BYTES > PATCH_BYTES ? TILE_BYTES : PATCH_BYTES) + 1023) / 1024) \
  X(ulong, barriers, 2 * STAGES) MMA_SHARED(X)

#define JOINED_(x, y) x##y
#define JOINED(x, y) JOINED_(x, y)
#define MULTIPLY JOINED(WGMMA_, BN)

// Where this loader's chunks of a tile stand in device memory at the first step of K, in bytes: rows of A or columns of B from
// `first` on. Those beyond the end are others again, whose sums are not written. They are found once, since a copy whose address
// is computed beside it waits for the copy before.
#define FIND_CHUNKS(offsets, along_k, rounds, first, end, stride)                                                  \
  UNROLL for (int e = 0; e < (rounds); ++e)                                                                       \
    offsets[e] = 2u * (uint)((along_k) ? IMIN((first) + loader / 8 + e * 16, (end) - 1) * (stride) + loader % 8 * 8 \
                                       : (loader / 8 + e % 4 * 16) * (stride) +                                   \
                                             IMIN((first) + e / 4 * 64 + loader % 8 * 8, (end) - 8));
// Copies the chunks, of steps of K from k_at on. Steps beyond the end are 0.
#define COPY_TILE(at, from, offsets, along_k, rounds, k_at)                                                          \
  UNROLL for (int e = 0; e < (rounds); ++e) {                                                                       \
    const bool inside = WHOLE_STEPS || (k_at) + ((along_k) ? loader % 8 * 8 : loader / 8 + e % 4 * 16) < k_last;      \
    COPY_OR_ZERO_ASYNC(tiles, (at) + own + 2048u * (uint)e, (__global const uint4 *)(from + (inside ? offsets[e] : 0u)), inside) \
  }
#define COPY_STAGE(stage, k_at)                                                                \
  {                                                                                            \
    const uint at_stage = tile_address + (uint)(stage) * (BYTES_A + BYTES_B);                  \
    COPY_TILE(at_stage, from_a, chunks_a, !TRANS_A, ROUNDS_A, k_at)                            \
    COPY_TILE(at_stage + BYTES_A, from_b, chunks_b, TRANS_B, ROUNDS_B, k_at)                   \
    NEXT_STEP()                                                                                \
  }
#define BEGIN_COPIES()                                                                         \
  uint chunks_a[ROUNDS_A], chunks_b[ROUNDS_B];                                                 \
  FIND_CHUNKS(chunks_a, !TRANS_A, ROUNDS_A, m0, m, TRANS_A ? m : k)                            \
  FIND_CHUNKS(chunks_b, TRANS_B, ROUNDS_B, n0, n, TRANS_B ? k : n)                             \
  BEGIN_STEPS()
#define MULTIPLY_STAGE(stage)                                                                               \
  {                                                                                                         \
    const uint at_a = tile_address + (uint)(stage) * (BYTES_A + BYTES_B) + (uint)(warpgroup * BLOCKS) * 8192u; \
    const uint at_b = tile_address + (uint)(stage) * (BYTES_A + BYTES_B) + BYTES_A;                          \
    UNROLL for (int s = 0; s < BK / 16; ++s) {                                                              \
      UNROLL for (int i = 0; i < BLOCKS; ++i)                                                               \
        MULTIPLY(sums + i * (BN / 2), at_a + (uint)i * 8192u + (uint)s * WGMMA_STEP_A, at_b + (uint)s * WGMMA_STEP_B) \
    }                                                                                                       \
  }
// A warp's sums go through its own memory: warps wait for none but their own lanes. `multiplies` is false for the producer.
#define STORE_SUMS(multiplies)                                                                                   \
  __local float *patch = (__local float *)tiles + LOCAL_ID(0) / 32 * 16 * PATCH_ROW;                               \
  UNROLL for (int i = 0; i < BLOCKS; ++i) {                                                                       \
    WARP_BARRIER();                                                                                              \
    if (multiplies) {                                                                                            \
      UNROLL for (int j = 0; j < BN / 8; ++j) PUT_PATCH(patch, PATCH_ROW, 8 * j, sums + i * (BN / 2) + 4 * j)      \
    }                                                                                                            \
    WARP_BARRIER();                                                                                              \
    if (multiplies)                                                                                              \
      STORE_PATCH(patch, PATCH_ROW, BN, m0 + (warpgroup * BLOCKS + i) * 64 + LOCAL_ID(0) / 32 % 4 * 16, n0)        \
  }

KERNEL_BEGIN
  __local uint4 *tiles = (__local uint4 *)eight_rows;
  const int warpgroup = LOCAL_ID(0) / 128, loader = LOCAL_ID(0) % 128, lane = LOCAL_ID(0) % 32;
  OWN_TILE(BM, BN)
  OWN_K_RANGE(BK)
  OWN_STEPS
  a += BASE_A;
  b += BASE_B;
  const uint tile_address = MMA_ADDRESS(tiles);
  const uint own = SWIZZLE(16u * (uint)loader);
#ifndef MMA_BY_HAND
  const uint full = MMA_ADDRESS(barriers), empty = full + 8u * STAGES;
  if (LOCAL_ID(0) == 0) {
    UNROLL for (int s = 0; s < STAGES; ++s) {
      INIT_BARRIER(full + 8u * s, LOADERS)
      INIT_BARRIER(empty + 8u * s, CONSUMERS * 4)
    }
    INIT_BARRIERS_END()
  }
  BARRIER();
  int stage = 0, phase = 0;
  if (warpgroup == CONSUMERS) {
    BEGIN_COPIES()
    for (int k0 = k_first; k0 < k_last; k0 += BK) {
      WAIT_FOR_PHASE(empty + 8u * stage, phase ^ 1)
      COPY_STAGE(stage, k0)
      ARRIVE_AFTER_COPIES(full + 8u * stage)
      stage = stage == STAGES - 1 ? 0 : stage + 1;
      if (stage == 0) phase ^= 1;
    }
  } else {
    float sums[BLOCKS * BN / 2];
    UNROLL for (int e = 0; e < BLOCKS * BN / 2; ++e) sums[e] = 0.0f;
    int last = -1;
    for (int k0 = k_first; k0 < k_last; k0 += BK) {
      WAIT_FOR_PHASE(full + 8u * stage, phase)
      WRITES_ARE_SEEN()
      WGMMA_BEGIN()
      MULTIPLY_STAGE(stage)
      WGMMA_END()
      // While these products run, the tile before is given back.
      WGMMA_WAIT_BUT(1)
      if (last >= 0 && lane == 0) ARRIVE(empty + 8u * last)
      last = stage;
      stage = stage == STAGES - 1 ? 0 : stage + 1;
      if (stage == 0) phase ^= 1;
    }
    WGMMA_WAIT_BUT(0)
    CONSUMERS_BARRIER();
    STORE_SUMS(true)
  }
#else
  float sums[BLOCKS * BN / 2];
  for (int e = 0; e < BLOCKS * BN / 2; ++e) sums[e] = 0.0f;
  BEGIN_COPIES()
  for (int k0 = k_first; k0 < k_last; k0 += BK) {
    const int stage = (k0 - k_first) / BK % STAGES;
    if (warpgroup == CONSUMERS) COPY_STAGE(stage, k0)
    BARRIER();
    if (warpgroup < CONSUMERS) MULTIPLY_STAGE(stage)
    BARRIER();
  }
  STORE_SUMS(warpgroup < CONSUMERS)
#endif
KERNEL_END
