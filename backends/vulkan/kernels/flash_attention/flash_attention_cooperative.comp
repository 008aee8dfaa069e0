// Attention forward of 16-bit floats on the matrix unit: a workgroup takes OWN_ROWS query rows of one head, a subgroup
// MATRIX_M of them, and streams tiles of BC keys past them with an online softmax.
// Source: Dao, FlashAttention-2 (2023), algorithm 1.
#if BIAS
#define BINDINGS(X) X(0, R, uint16_t, q) X(1, R, uint16_t, k) X(2, R, uint16_t, v) X(3, R, int, extras) \
  X(4, R, float, bias) X(5, W, uint16_t, o) X(6, W, float, lse)
#else
#define BINDINGS(X) X(0, R, uint16_t, q) X(1, R, uint16_t, k) X(2, R, uint16_t, v) X(3, R, int, extras) \
  X(4, W, uint16_t, o) X(5, W, float, lse)
#endif
// blocks: of query rows per head; items: batch x heads x blocks
#define CONSTANTS(X) X(0, int, s_len) X(1, int, t_len) X(2, int, heads) X(3, int, kv_heads) X(4, int, blocks) \
  X(5, int, items) X(6, float, scale) EXTRA_CONSTANTS(X)
#include "attention_matrix.inc"
#include "attention_matrix_mask.inc"
#include "attention_rescale.inc"
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
// Queries stay in registers where there is room (OWN_X_HELD), else in workgroup memory.
#define K_AT 0
#define V_AT (K_AT + BC * STRIDE_D)
#define SCORES_AT (V_AT + TURNED_WORDS(DVP, WORDS_BC, MATRIX_N))
#define RESCALES_AT (SCORES_AT + OWN_ROWS * SCORE_STRIDE)
#define END_AT (RESCALES_AT + OWN_ROWS / 4)
#if OWN_X_HELD
#define Q_AT 0
#define SHARED(X) X(uvec4, memory, LARGER(END_AT, OWN_ROWS * STRIDE_D))
#define OWN_Q(matrix, k) matrix = own_q[k];
#else
#define Q_AT END_AT
#define SHARED(X) X(uvec4, memory, (Q_AT + OWN_ROWS * STRIDE_D))
#define OWN_Q(matrix, k) LOAD_OWN(matrix, Q_AT, DP, k);
#endif
#define HOLD_TILES(from)                                                                              \
  HOLD_TILE(held_k, places_k, 0, DP, k, base_k, from, t_len, D, kv_heads * D)                         \
  HOLD_TILE(held_v, places_v, 1, DVP, v, base_v, from, t_len, DV, kv_heads * DV)
#define WRITE_TILES                                                                                   \
  BARRIER();                                                                                          \
  WRITE_TILE(held_k, 0, K_AT, DP, D)                                                                  \
  WRITE_TURNED_TILE(held_v, V_AT, DVP)                                                                \
  BARRIER();
// Over the invocations that hold a row's items.
#define OVER_ROW(x, OPERATION) \
  UNROLL for (int mesh_s = 1; mesh_s < GROUPS; mesh_s *= 2) x = OPERATION(x, subgroupShuffleXor(x, mesh_s));
#define SUM_OF_TWO(x, y) ((x) + (y))
// Every column of it is the rows' factors.
#define LOAD_RESCALES(factors) \
  coopMatLoadNV(factors, memory, RESCALES_AT + own * (MATRIX_M / 4), 0, true);

KERNEL_BEGIN
  int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    int own = int(gl_SubgroupID);
    int lane = int(gl_SubgroupInvocationID);
    int own_rows = own * MATRIX_M;
    int own_scores = SCORES_AT + own_rows * SCORE_STRIDE;
    int first = item % blocks * OWN_ROWS;
    int count = IMIN(OWN_ROWS, s_len - first);
    int head = item / blocks % heads;
    int batch = item / blocks / heads;
    int group = head / (heads / kv_heads);
    float scale_log2 = scale * LOG2_E;
    float factor = LOGITS ? 1.0f : scale_log2;
    DECODE_EXTRAS(items / blocks / heads, batch)
    DECODE_HEAD
    DECLARE_SHOWN_KEYS
    LOAD_OWN_ROWS(Q_AT, q, WORDS_D, (batch * s_len * heads + head) * D, first, s_len, D, heads * D)
#if OWN_X_HELD
    BARRIER();
    MatrixA own_q[DP / MATRIX_K];
    UNROLL for (int k = 0; k < DP / MATRIX_K; ++k) LOAD_OWN(own_q[k], Q_AT, DP, k);
#endif
    MatrixSum sums[DVP / MATRIX_N];
    UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) sums[n] = FIRST_SUM;
    // Per item, of its row: the logit, in units of log2, that probabilities are relative to, and of the sum of the probabilities what
    // the items here add.
    float base[ITEMS];
    float row_sum[ITEMS];
    int segment[ITEMS];
    UNROLL for (int e = 0; e < ITEMS; ++e) {
      base[e] = HAS(SINK) ? NUMBER_AT(sink_at + head) * LOG2_E : MASKED_SCORE;
      row_sum[e] = HAS(SINK) && ITEM_GROUP(e) == 0 ? exp2(LOG2_SCALE) : 0.0f;
      segment[e] = HAS_SEGMENTS ? QUERY_SEGMENT(first + own_rows + ITEM_ROW(e)) : 0;
    }
    int base_k = (batch * t_len * kv_heads + group) * D;
    int base_v = (batch * t_len * kv_heads + group) * DV;
    DECLARE_PLACES(places_k, 0, DP, D, kv_heads * D)
    DECLARE_PLACES(places_v, 1, DVP, DV, kv_heads * DV)
    uvec4 held_k[HELD(0, DP)];
    uvec4 held_v[HELD(1, DVP)];
    int tile = begin;
    SKIP_KEYS(tile, last)
    int from = IMIN(tile, t_len - 1);
    HOLD_TILES(from)
    WRITE_AHEAD
    while (tile < last) {
#ifdef ROLLED
      uvec4 held_k[HELD(0, DP)];
      uvec4 held_v[HELD(1, DVP)];
#else
      WRITE_TILES
#endif
      int next_tile = tile + BC;
      SKIP_KEYS(next_tile, last)
#ifndef ROLLED
      // In a branch, out of which compilers do not move the loads to where they are waited for.
      if (next_tile < last) {
        HOLD_TILES(next_tile)
      }
#endif
      MatrixSum products[BC / MATRIX_N];
      UNROLL for (int n = 0; n < BC / MATRIX_N; ++n) products[n] = MatrixSum(0.0f);
      ADD_SCORES(products, OWN_Q, K_AT, DP)
      STORE_SCORES(products)
      FENCE();
      float x[ITEMS * 8];
      READ_SCORES(x)
      if (LOGITS) {
        UNROLL for (int e = 0; e < ITEMS; ++e) {
          int i = first + own_rows + ITEM_ROW(e);
          int j = tile + ITEM_GROUP(e) * 8;
          UNROLL for (int u = 0; u < 8; ++u) {
            float softcap_grad;
            LOGIT(x[e * 8 + u], softcap_grad, i, j + u)
          }
        }
      }
      if (!ALL_KEYS_SHOWN(tile)) {
        UNROLL for (int e = 0; e < ITEMS; ++e) {
          int i = first + own_rows + ITEM_ROW(e);
          int j = tile + ITEM_GROUP(e) * 8;
          DECODE_SHOWN_KEYS(i, j)
          UNROLL for (int u = 0; u < 8; ++u) {
            bool shown = IS_SHOWN_KEY(u) && SEES_BIT(i, j + u);
            if (HAS_SEGMENTS) shown = shown && segment[e] == KEY_SEGMENT(j + u);
            x[e * 8 + u] = shown ? x[e * 8 + u] : MASKED_SCORE;
          }
        }
      }
      float largest[ITEMS];
      bool grows = false;
      UNROLL for (int e = 0; e < ITEMS; ++e) {
        largest[e] = x[e * 8];
        UNROLL for (int u = 1; u < 8; ++u) largest[e] = max(largest[e], x[e * 8 + u]);
        OVER_ROW(largest[e], max)
        largest[e] = largest[e] > 0.5f * MASKED_SCORE ? largest[e] * factor : MASKED_SCORE;
        grows = grows || largest[e] > base[e] + SLACK;
      }
#ifdef ROLLED
      const bool rescales = true;
#else
      bool rescales = subgroupAny(grows);
#endif
      if (rescales) {
        UNROLL for (int e = 0; e < ITEMS; ++e) {
          float next_base = max(base[e], largest[e]);
          float rescale = exp2(base[e] - next_base);
          base[e] = next_base;
          row_sum[e] *= rescale;
          if (ITEM_GROUP(e) == 0)
            memory[RESCALES_AT + QUOTIENT(own_rows + ITEM_ROW(e), 4)][REST(ITEM_ROW(e), 4)] = BITS_OF(rescale);
        }
      }
      // Not within the branch: lavapipe takes it for a barrier of the workgroup, whose subgroups go different ways.
      FENCE();
#ifndef ROLLED
      if (rescales) {
        MatrixSum factors;
        LOAD_RESCALES(factors)
        UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) sums[n] = MULTIPLY_ELEMENTWISE(sums[n], factors);
      }
#endif
      UNROLL for (int e = 0; e < ITEMS; ++e) {
        // For a row that has seen no key so far, so that its probabilities are 0.
        float from = base[e] > 0.5f * MASKED_SCORE ? base[e] - LOG2_SCALE : 0.0f;
        UNROLL for (int u = 0; u < 8; ++u) {
          x[e * 8 + u] = exp2(MAD(x[e * 8 + u], factor, -from));
          row_sum[e] += x[e * 8 + u];
        }
        WRITE_PARTS(x, e, 1.0f)
      }
      FENCE();
      MatrixA parts[BC / MATRIX_K * PARTS];
      LOAD_PARTS(parts)
#ifdef ROLLED
      // Always, and where each sum is used: ANV keeps sums that a branch may change twice.
      MatrixSum factors;
      LOAD_RESCALES(factors)
#endif
      UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) {
#ifdef ROLLED
        sums[n] = MULTIPLY_ELEMENTWISE(sums[n], factors);
#endif
        ADD_WEIGHTED(sums[n], parts, V_AT, n)
#ifdef ROLLED
        // Behind the first of them, where registers are free again.
        if (n == 0) {
          int next_from = IMIN(next_tile, t_len - 1);
          HOLD_TILES(next_from)
        }
#endif
      }
      tile = next_tile;
      WRITE_AHEAD
    }
    float inverse[ITEMS];
    UNROLL for (int e = 0; e < ITEMS; ++e) {
      OVER_ROW(row_sum[e], SUM_OF_TWO)
      inverse[e] = row_sum[e] > 0.0f ? 1.0f / row_sum[e] : 0.0f;
      int i = first + own_rows + ITEM_ROW(e);
      if (i < s_len && ITEM_GROUP(e) == 0)
        STORE(lse, (batch * heads + head) * s_len + i,
              row_sum[e] > 0.0f ? (base[e] + log2(row_sum[e]) - LOG2_SCALE) * LN_2 : -INFINITY_F);
    }
    WRITE_SUMS(sums, o, DVP, DV, s_len, heads, head, inverse)
  }
KERNEL_END
