// Attention forward of 16-bit floats on NVIDIA's tensor cores: a workgroup takes OWN_ROWS query rows of one head and streams
// tiles of BC keys past them with an online softmax. There is room for two tiles of keys and values: while one is multiplied
// the next is on its way.
// Source: Dao, FlashAttention-2 (2023), algorithm 1.
#include "attention_matrix_forward.inc"
#include "attention_mma.inc"
#define TILE_WORDS (BC * (STRIDE(DP) + STRIDE(DVP)))
#define VALUES (BC * STRIDE(DP))  // of a tile, behind its keys
// Queries go through the second tile's place, if they fit, on their way to registers; else through both.
#define OWN_FITS (OWN_ROWS * STRIDE(DP) <= TILE_WORDS)
#define OWN_AT (OWN_FITS ? TILE_WORDS : 0)
#define SHARED(X) \
  X(uint4, memory, (LARGER(2 * TILE_WORDS, OWN_ROWS * LARGER(STRIDE(DP), STRIDE(DVP))))) X(int, own_first, 1) MMA_SHARED(X)
#define COPY_TILE(at, from)                                                               \
  COPY_ROWS(at, BC, k, base_k, from, t_len, DP, D, kv_heads * D)                          \
  COPY_ROWS((at) + VALUES, BC, v, base_v, from, t_len, DVP, DV, kv_heads * DV)

KERNEL_BEGIN
  int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    DECLARE_LANE
    DECLARE_ITEM
    DECLARE_OWN_SEGMENTS(QUERY_SEGMENT)
    bool same_segment = false;
    int tile = begin;
    FIND_TILE(tile, same_segment)
    COPY_ROWS(OWN_AT, OWN_ROWS, q, base_q, first, s_len, DP, D, heads * D)
    CLEAR_ROWS(OWN_AT, OWN_ROWS, DP, D)
    if (OWN_FITS && tile < last) { COPY_TILE(0, tile) }
    if (LOCAL_ID(0) == 0) own_first[0] = first;
    WAIT_FOR_COPIES()
    BARRIER();
    uint own[OWN_WORDS(DP)];
    LOAD_OWN(own, OWN_AT, DP)
    BARRIER();
    if (!OWN_FITS && tile < last) { COPY_TILE(0, tile) }
    CLEAR_ROWS(0, BC, DP, D)
    CLEAR_ROWS(TILE_WORDS, BC, DP, D)

    // Of the lane's rows: the logit, in units of log2, that probabilities are relative to, and of the sum of the probabilities
    // what the lane's own keys add.
    float base[2 * ROW_MATRICES], row_sum[2 * ROW_MATRICES];
    int segment[2 * ROW_MATRICES];
    UNROLL for (int r = 0; r < 2 * ROW_MATRICES; ++r) {
      base[r] = HAS(SINK) ? NUMBER_AT(sink_at + head) * LOG2_E : MASKED_SCORE;
      row_sum[r] = HAS(SINK) && lane % 4 == 0 ? exp2(LOG2_SCALE) : 0.0f;
      segment[r] = HAS_SEGMENTS ? QUERY_SEGMENT(first + OWN_ROW(r / 2, r % 2 * 2)) : 0;
    }
    float sums[SUMS(DVP)];
    UNROLL for (int e = 0; e < SUMS(DVP); ++e) sums[e] = 0.0f;
    int at = 0;
    while (tile < last) {
      WAIT_FOR_COPIES()
      // Behind it the tile is whole, and nobody reads the other one any more.
      BARRIER();
      int next_tile = tile + BC;
      bool next_same_segment = false;
      FIND_TILE(next_tile, next_same_segment)
      if (next_tile < last) { COPY_TILE(TILE_WORDS - at, next_tile) }
      float x[SCORES];
      UNROLL for (int e = 0; e < SCORES; ++e) x[e] = 0.0f;
      ADD_SCORES(x, own, at, DP)
      if (LOGITS) {
        FOR_EACH_SCORE(m, n, e) {
          float softcap_grad;
          LOGIT(x[SCORE(m, n, e)], softcap_grad, first + OWN_ROW(m, e), tile + COLUMN(n, e))
        }
      }
      if (!ALL_KEYS_SHOWN(tile)) { MASK_KEYS(x, tile, MASKED_SCORE) }
      float largest[2 * ROW_MATRICES];
      UNROLL for (int r = 0; r < 2 * ROW_MATRICES; ++r) largest[r] = MASKED_SCORE;
      FOR_EACH_SCORE(m, n, e) largest[m * 2 + e / 2] = FMAX(largest[m * 2 + e / 2], x[SCORE(m, n, e)]);
      OVER_QUADS(largest, FMAX)
      bool grows = false;
      UNROLL for (int r = 0; r < 2 * ROW_MATRICES; ++r) {
        largest[r] = largest[r] > 0.5f * MASKED_SCORE ? largest[r] * factor : MASKED_SCORE;
        grows = grows || largest[r] > base[r] + SLACK;
      }
      if (grows) {
        UNROLL for (int r = 0; r < 2 * ROW_MATRICES; ++r) {
          float next_base = FMAX(base[r], largest[r]);
          float rescale;
          EXP2(rescale, base[r] - next_base)
          base[r] = next_base;
          row_sum[r] *= rescale;
          UNROLL for (int n = 0; n < DVP / 8; ++n) {
            sums[SUM(DVP, r / 2, n, r % 2 * 2)] *= rescale;
            sums[SUM(DVP, r / 2, n, r % 2 * 2 + 1)] *= rescale;
          }
        }
      }
      FOR_EACH_SCORE(m, n, e) {
        // For a row that has seen no key so far, so that its probabilities are 0.
        float from = base[m * 2 + e / 2] > 0.5f * MASKED_SCORE ? base[m * 2 + e / 2] - LOG2_SCALE : 0.0f;
        EXP2(x[SCORE(m, n, e)], MAD(x[SCORE(m, n, e)], factor, -from))
        row_sum[m * 2 + e / 2] += x[SCORE(m, n, e)];
      }
      ADD_WEIGHTED(sums, x, at + VALUES, DVP)
      tile = next_tile;
      same_segment = next_same_segment;
      at = TILE_WORDS - at;
    }
    OVER_QUADS(row_sum, SUM_OF_TWO)
    // Read again, so that the loop needs no register for the rows that its results go to.
    first = own_first[0];
    UNROLL for (int r = 0; r < 2 * ROW_MATRICES; ++r) {
      int i = first + OWN_ROW(r / 2, r % 2 * 2);
      // A row that saw no key at all is 0.
      if (lane % 4 == 0 && i < s_len)
        STORE(lse, (batch * heads + head) * s_len + i,
              row_sum[r] > 0.0f ? (base[r] + log2(row_sum[r]) - LOG2_SCALE) * LN_2 : -INFINITY_F);
      row_sum[r] = row_sum[r] > 0.0f ? 1.0f / row_sum[r] : 0.0f;
    }
    WRITE_SUMS(sums, o, DVP, DV, s_len, heads, head, row_sum)
  }
KERNEL_END
