// Attention forward of 16-bit floats on the matrix units of Intel's GPUs: a workgroup takes OWN_ROWS query rows of one head and streams
// tiles of BC keys past them with an online softmax: S^T = K Q^T, O^T = V^T P^T. Workgroup memory has room for two tiles of keys
// and values: while one is multiplied the next is on its way in registers.
// Source: Dao, FlashAttention-2 (2023), algorithm 1.
#include "attention_matrix_forward.inc"
#include "attention_dpas.inc"
#define VALUES ROWS_WORDS(DP)  // of a tile, behind its keys
#define TILE_WORDS (VALUES + PAIRS_WORDS(DV))
#define OWN_AT (2 * TILE_WORDS)
#define SHARED(X) X(uint4, memory, ((OWN_AT + OWN_WORDS(DP)) / 4)) DPAS_SHARED(X)
#define FETCH_TILE(from)                                                          \
  FETCH_ROWS(next_k, k, base_k, from, t_len, DP, D, kv_heads * D)                 \
  FETCH_PAIRS(next_v, v, base_v, from, t_len, DV, kv_heads * DV)
#define PUT_TILE(at)              \
  PUT_ROWS(at, next_k, DP, D)      \
  PUT_PAIRS((at) + VALUES, next_v, DV)
#define LOGIT_OF(e)                                                               \
  {                                                                               \
    float softcap_grad, logit = scores[m * BANDS + b].s##e;                       \
    LOGIT(logit, softcap_grad, first + OWN_ROW(m, e), tile + COLUMN(b, e))        \
    scores[m * BANDS + b].s##e = logit;                                           \
  }

KERNEL_BEGIN
  int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    DECLARE_LANE
    DECLARE_ITEM
    DECLARE_OWN_SEGMENTS(QUERY_SEGMENT)
    bool same_segment = false;
    int tile = begin;
    FIND_TILE(tile, same_segment)
    uint4 next_k[ROW_ITEMS(DP)], next_v[2 * PAIR_ITEMS(DV)];
    if (tile < last) { FETCH_TILE(tile) }
    DECLARE_OWN(own, DP)
    LOAD_OWN(own, OWN_AT, q, base_q, s_len, DP, D, heads * D)
    if (tile < last) { PUT_TILE(0) }
    BARRIER();

    // Of the lane's rows: the logit, in units of log2, that probabilities are relative to, and the sum of the probabilities.
    float base[ROW_MATRICES], row_sum[ROW_MATRICES];
    int segment[ROW_MATRICES];
    UNROLL for (int m = 0; m < ROW_MATRICES; ++m) {
      base[m] = HAS(SINK) ? NUMBER_AT(sink_at + head) * LOG2_E : MASKED_SCORE;
      row_sum[m] = HAS(SINK) ? exp2(LOG2_SCALE) : 0.0f;
      segment[m] = HAS_SEGMENTS ? QUERY_SEGMENT(first + OWN_ROW(m, 0)) : 0;
    }
    float8 sums[ROW_MATRICES * DV / 8];
    UNROLL for (int e = 0; e < ROW_MATRICES * DV / 8; ++e) sums[e] = (float8)(0.0f);
    int at = 0;
    while (tile < last) {
      int next_tile = tile + BC;
      bool next_same_segment = false;
      FIND_TILE(next_tile, next_same_segment)
      float8 scores[ROW_MATRICES * BANDS];
      UNROLL for (int e = 0; e < ROW_MATRICES * BANDS; ++e) scores[e] = (float8)(0.0f);
      ADD_SCORES(scores, own, OWN_AT, at, DP)
      if (LOGITS) {
        FOR_EACH_BAND(m, b) { EACH_OF_8(LOGIT_OF) }
      }
      if (!ALL_KEYS_SHOWN(tile)) { MASK_KEYS(scores, tile, MASKED_SCORE) }
      float next_base[ROW_MATRICES];
      bool grows = false;
      UNROLL for (int m = 0; m < ROW_MATRICES; ++m) {
        float8 top = scores[m * BANDS];
        UNROLL for (int b = 1; b < BANDS; ++b) top = fmax(top, scores[m * BANDS + b]);
        float largest = largest_of_8(top);
        largest = largest > 0.5f * MASKED_SCORE ? largest * factor : MASKED_SCORE;
        next_base[m] = FMAX(base[m], largest);
        grows = grows || largest > base[m] + SLACK;
      }
      if (grows) {
        UNROLL for (int m = 0; m < ROW_MATRICES; ++m) {
          float rescale;
          EXP2(rescale, base[m] - next_base[m])
          base[m] = next_base[m];
          row_sum[m] *= rescale;
          UNROLL for (int n = 0; n < DV / 8; ++n) sums[m * (DV / 8) + n] *= rescale;
        }
      }
      UNROLL for (int m = 0; m < ROW_MATRICES; ++m) {
        // For a row that has seen no key so far, so that its probabilities are 0.
        const float from = base[m] > 0.5f * MASKED_SCORE ? base[m] - LOG2_SCALE : 0.0f;
        float8 total = (float8)(0.0f);
        UNROLL for (int b = 0; b < BANDS; ++b) {
          EXP2(scores[m * BANDS + b], MAD(scores[m * BANDS + b], (float8)(factor), (float8)(-from)))
          total += scores[m * BANDS + b];
        }
        row_sum[m] += sum_of_8(total);
      }
      // Behind the last tile what nobody reads is fetched, which costs less than a branch at every tile.
      ADD_WEIGHTED(sums, scores, at + VALUES, DV, FETCH_TILE(next_tile))
      tile = next_tile;
      same_segment = next_same_segment;
      at = TILE_WORDS - at;
      // Who still reads the other tile has not passed the last barrier.
      PUT_TILE(at)
      BARRIER();
    }
    UNROLL for (int m = 0; m < ROW_MATRICES; ++m) {
      const int i = first + OWN_ROW(m, 0);
      // A row that saw no key at all is 0.
      if (i < s_len)
        STORE(lse, (batch * heads + head) * s_len + i,
              row_sum[m] > 0.0f ? (base[m] + log2(row_sum[m]) - LOG2_SCALE) * LN_2 : -INFINITY_F);
      row_sum[m] = row_sum[m] > 0.0f ? 1.0f / row_sum[m] : 0.0f;
    }
    WRITE_SUMS(sums, o, DV, s_len, heads, head, row_sum)
  }
KERNEL_END
