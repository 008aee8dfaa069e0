// Attention forward of 16-bit floats on the tensor cores of NVIDIA's compute capability 9.0 (wgmma.inc): a workgroup takes OWN_ROWS
// query rows of one head, 64 of each warpgroup, and streams tiles of BC keys past them with an online softmax. Queries and
// probabilities are operands in registers, keys and values stand in workgroup memory. The scores of the next tile are multiplied
// before the values of this one, so that its softmax runs beside them.
// Sources: Dao, FlashAttention-2 (2023), algorithm 1; Shah and others, FlashAttention-3 (2024), algorithm 2.
#include "attention_matrix_forward.inc"
#include "attention_mma.inc"
#include "wgmma.inc"
#include "attention_wgmma.inc"
// Queries stand in front of the tiles, and sums at the end. Of a tile the keys stand in blocks of 64 features, and the values in
// blocks of 64 keys of blocks of 64 features.
#define OWN_KILOBYTES KILOBYTES(OWN_ROWS * LARGER(STRIDE(DP), STRIDE(DVP)) * 16)
#define KEY_BYTES (BC * D * 2)
#define TILE_BYTES (BC * (D + DV) * 2)
#define SHARED(X)                                                                   \
  X(EightRows, eight_rows, (OWN_KILOBYTES + STAGES * (TILE_BYTES / 1024))) \
  X(ulong, barriers, 2 * STAGES) MMA_SHARED(X)
#define STAGE_AT(stage) (tiles + (uint)(stage) * TILE_BYTES)
#define KEY_PLACE(row, word, width) ((word) / 8 * (BC * 128) + (row) * 128 + (word) % 8 * 16)
// Begins the copies of the tile at `copied` into the stage that is next, and finds the one behind it.
#define COPY_TILE()                                                                                           \
  {                                                                                                           \
    WAIT_UNTIL_EMPTY(into, into_phase)                                                                        \
    COPY_SWIZZLED(STAGE_AT(into), KEY_PLACE, BC, k, base_k, copied, t_len, D, kv_heads * D)                   \
    COPY_SWIZZLED(STAGE_AT(into) + KEY_BYTES, BLOCK_PLACE, BC, v, base_v, copied, t_len, DV, kv_heads * DV)   \
    COPIES_ARRIVE(into)                                                                                       \
    NEXT_STAGE(into, into_phase)                                                                              \
    copied += BC;                                                                                             \
    bool mesh_same = false;                                                                                   \
    FIND_TILE(copied, mesh_same)                                                                              \
    (void)mesh_same;                                                                                          \
  }
// `tile` becomes the next one, if there is one, and has arrived.
#define FIND_NEXT_TILE()        \
  tile += BC;                   \
  FIND_TILE(tile, same_segment) \
  WAIT_FOR_NEXT_STAGE(tile < last)
// Scores of the tile at `stage`.
#define MULTIPLY_KEYS(stage)                                                                              \
  WGMMA_OWN_FIRST(BC, x, own, STAGE_AT(stage), 1)                                                         \
  UNROLL for (int mesh_k = 1; mesh_k < D / 16; ++mesh_k)                                                  \
    WGMMA_OWN(BC, x, own + 4 * mesh_k, STAGE_AT(stage) + (uint)(mesh_k / 4 * (BC * 128) + mesh_k % 4 * 32), 1) \
  WGMMA_END()
// Makes probabilities of the scores x, and `rescale` what sums must be multiplied by where `grows`.
#define SOFTMAX(tile)                                                                                     \
  {                                                                                                       \
    if (LOGITS) {                                                                                         \
      FOR_EACH_SCORE(m, n, e) {                                                                           \
        float softcap_grad;                                                                               \
        LOGIT(x[SCORE(m, n, e)], softcap_grad, first + OWN_ROW(m, e), (tile) + COLUMN(n, e))              \
      }                                                                                                   \
    }                                                                                                     \
    if (!ALL_KEYS_SHOWN(tile)) { MASK_KEYS(x, tile, MASKED_SCORE) }                                       \
    float largest[2] = {MASKED_SCORE, MASKED_SCORE};                                                      \
    FOR_EACH_SCORE(m, n, e) largest[e / 2] = FMAX(largest[e / 2], x[SCORE(m, n, e)]);                     \
    OVER_QUADS(largest, FMAX)                                                                             \
    grows = false;                                                                                        \
    UNROLL for (int r = 0; r < 2; ++r) {                                                                  \
      largest[r] = largest[r] > 0.5f * MASKED_SCORE ? largest[r] * factor : MASKED_SCORE;                 \
      grows = grows || largest[r] > base[r] + SLACK;                                                      \
    }                                                                                                     \
    if (grows) {                                                                                          \
      UNROLL for (int r = 0; r < 2; ++r) {                                                                \
        const float next_base = FMAX(base[r], largest[r]);                                                \
        EXP2(rescale[r], base[r] - next_base)                                                             \
        base[r] = next_base;                                                                              \
        row_sum[r] *= rescale[r];                                                                         \
        /* For a row that has seen no key so far, so that its probabilities are 0. */                     \
        from[r] = next_base > 0.5f * MASKED_SCORE ? next_base - LOG2_SCALE : 0.0f;                        \
      }                                                                                                   \
    }                                                                                                     \
    FOR_EACH_SCORE(m, n, e) {                                                                             \
      EXP2(x[SCORE(m, n, e)], MAD(x[SCORE(m, n, e)], factor, -from[e / 2]))                               \
      row_sum[e / 2] += x[SCORE(m, n, e)];                                                                \
    }                                                                                                     \
  }
KERNEL_BEGIN
  __local uint4 *memory = (__local uint4 *)eight_rows;
  int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    DECLARE_LANE
    DECLARE_ITEM
    const uint tiles = MMA_ADDRESS(memory) + OWN_KILOBYTES * 1024u;
    uint lost = 0u;
    BEGIN_BARRIERS()
    DECLARE_OWN_SEGMENTS(QUERY_SEGMENT)
    bool same_segment = false;
    int tile = begin;
    FIND_TILE(tile, same_segment)
    int copied = tile, into = 0, into_phase = 0;
    COPY_ROWS(0, OWN_ROWS, q, base_q, first, s_len, DP, D, heads * D)
    COPIES_END()
    // The first tile is taken, and hidden, where no row sees any.
    UNROLL for (int a = 0; a < AHEAD; ++a) {
      if (a == 0 || copied < last) COPY_TILE()
    }
    COPIES_END()
    WAIT_FOR_COPIES_BUT(1)
    BARRIER();
    uint own[OWN_WORDS(DP)];
    LOAD_OWN(own, 0, DP)

    // Of the lane's rows: the logit, in units of log2, that probabilities are relative to, the same as it is subtracted, and of the
    // sum of the probabilities what the lane's own keys add.
    float base[2], from[2], row_sum[2], rescale[2] = {1.0f, 1.0f};
    int segment[2];
    UNROLL for (int r = 0; r < 2; ++r) {
      base[r] = HAS(SINK) ? NUMBER_AT(sink_at + head) * LOG2_E : MASKED_SCORE;
      from[r] = HAS(SINK) ? base[r] - LOG2_SCALE : 0.0f;
      row_sum[r] = HAS(SINK) && lane % 4 == 0 ? exp2(LOG2_SCALE) : 0.0f;
      segment[r] = HAS_SEGMENTS ? QUERY_SEGMENT(first + OWN_ROW(0, r * 2)) : 0;
    }
    float sums[SUMS(DVP)];
    UNROLL for (int e = 0; e < SUMS(DVP); ++e) sums[e] = 0.0f;
    float x[SCORES];
    uint p[BC / 2];
    bool grows = false;
    int stage = 0, phase = 0;
    WAIT_UNTIL_FULL(stage, phase)
    WGMMA_BEGIN()
    MULTIPLY_KEYS(stage)
    if (copied < last) COPY_TILE()
    WGMMA_WAIT_BUT(0)
    WGMMA_ARRIVED(BC, x)
    SOFTMAX(tile)
    FIND_NEXT_TILE()
    SPLIT_WEIGHTS(p, x)
    while (tile < last) {
      const int before = stage;
      NEXT_STAGE(stage, phase)
      WGMMA_BEGIN()
      MULTIPLY_KEYS(stage)
      MULTIPLY_WEIGHTED(sums, p, STAGE_AT(before) + KEY_BYTES, DV)
      if (copied < last) COPY_TILE()
      WGMMA_WAIT_BUT(1)
      WGMMA_ARRIVED(BC, x)
      SOFTMAX(tile)
      // Here, and not in front of its product: the assembler moves no exponential past a wait that may be repeated, and the fence
      // in it stands far behind the copies.
      WGMMA_ARRIVED(BC, x)
      FIND_NEXT_TILE()
      WGMMA_WAIT_BUT(0)
      WGMMA_ARRIVED(DV, sums)
      RELEASE(before)
      if (grows) {
        UNROLL for (int e = 0; e < SUMS(DVP); ++e) sums[e] *= rescale[e % 4 / 2];
      }
      SPLIT_WEIGHTS(p, x)
    }
    WGMMA_BEGIN()
    MULTIPLY_WEIGHTED(sums, p, STAGE_AT(stage) + KEY_BYTES, DV)
    WGMMA_WAIT_BUT(0)
    WGMMA_ARRIVED(DV, sums)
    OVER_QUADS(row_sum, SUM_OF_TWO)
    UNROLL for (int r = 0; r < 2; ++r) {
      int i = first + OWN_ROW(0, r * 2);
      // A row that saw no key at all is 0; one whose keys never arrived is no number.
      if (lost != 0u) row_sum[r] = NAN;
      if (lane % 4 == 0 && i < s_len)
        STORE(lse, (batch * heads + head) * s_len + i,
              row_sum[r] <= 0.0f ? -INFINITY_F : (base[r] + log2(row_sum[r]) - LOG2_SCALE) * LN_2);
      row_sum[r] = row_sum[r] <= 0.0f ? 0.0f : 1.0f / row_sum[r];
    }
    WRITE_SUMS(sums, o, DVP, DV, s_len, heads, head, row_sum)
  }
KERNEL_END
