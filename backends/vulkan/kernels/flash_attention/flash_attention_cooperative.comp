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
#define SHARED(X) X(uvec4, tile_q, (OWN_ROWS * STRIDE_D)) X(uvec4, tile_k, (BC * STRIDE_D)) X(uvec4, tile_v, (BC * STRIDE_DV)) \
  X(uvec4, scores, (OWN_ROWS * SCORE_STRIDE)) X(float, rescales, (OWN_ROWS * MATRIX_N)) X(float, group_max, (OWN_ROWS * GROUPS)) \
  X(float, group_sums, (OWN_ROWS * GROUPS)) X(float, row_max, (OWN_ROWS)) X(float, row_sum, (OWN_ROWS))

KERNEL_BEGIN
  int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    int own = int(gl_SubgroupID);
    int lane = int(gl_SubgroupInvocationID);
    int own_rows = own * MATRIX_M;
    int own_scores = own_rows * SCORE_STRIDE;
    int first = item % blocks * OWN_ROWS;
    int count = IMIN(OWN_ROWS, s_len - first);
    int head = item / blocks % heads;
    int batch = item / blocks / heads;
    int group = head / (heads / kv_heads);
    DECODE_EXTRAS(items / blocks / heads, batch)
    DECODE_HEAD
    int begin = IMIN(IMAX(first + offset - left, 0), t_len);
    int last = IMIN(first + count + offset + right, t_len);
    if (prefix > 0) {
      last = begin < last ? IMAX(last, prefix) : prefix;
      begin = 0;
    }
    ALIGN_TO_STEPS(begin)
    for (int row = lane; row < MATRIX_M; row += LANES_OF_SUBGROUP) {
      row_max[own_rows + row] = HAS(SINK) ? NUMBER_AT(sink_at + head) : MASKED_SCORE;
      row_sum[own_rows + row] = HAS(SINK) ? 1.0f : 0.0f;
    }
    LOAD_ROWS(tile_q, q, OWN_ROWS, WORDS_D, (batch * s_len * heads + head) * D, first, s_len, D, heads * D)
    MatrixSum sums[DVP / MATRIX_N];
    UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) sums[n] = MatrixSum(0.0f);
    int base_k = (batch * t_len * kv_heads + group) * D;
    int base_v = (batch * t_len * kv_heads + group) * DV;
    for (int tile = begin; tile < last; tile += BC) {
      SKIP_KEYS(tile, last)
      BARRIER();
      LOAD_ROWS(tile_k, k, BC, WORDS_D, base_k, tile, t_len, D, kv_heads * D)
      LOAD_ROWS(tile_v, v, BC, WORDS_DV, base_v, tile, t_len, DV, kv_heads * DV)
      BARRIER();
      SCORES(scores, tile_q, tile_k, WORDS_D)
      FENCE();
      float x[ITEMS * 8];
      UNROLL for (int e = 0; e < ITEMS; ++e) {
        int row = ITEM_ROW(e);
        int column = ITEM_GROUP(e) * 8;
        float item_max = MASKED_SCORE;
        UNROLL for (int u = 0; u < 8; ++u) {
          float logit = SCORE(scores, row, column + u) * scale;
          float softcap_grad;
          bool visible;
          LOGIT(logit, softcap_grad, visible, first + own_rows + row, tile + column + u)
          x[e * 8 + u] = visible ? logit : MASKED_SCORE;
          item_max = max(item_max, x[e * 8 + u]);
        }
        group_max[own_rows * GROUPS + row * GROUPS + column / 8] = item_max;
      }
      FENCE();
      UNROLL for (int e = 0; e < ITEMS; ++e) {
        int row = ITEM_ROW(e);
        int column = ITEM_GROUP(e);
        float next = row_max[own_rows + row];
        for (int g = 0; g < GROUPS; ++g) next = max(next, group_max[(own_rows + row) * GROUPS + g]);
        // For a row that has seen no key so far, so that exp(MASKED_SCORE - base) is 0.
        float base = next > 0.5f * MASKED_SCORE ? next : 0.0f;
        float rescale = exp(row_max[own_rows + row] - base);
        float sum = 0.0f;
        uvec4 high;
        uvec4 low;
        UNROLL for (int u = 0; u < 8; ++u) {
          x[e * 8 + u] = exp(x[e * 8 + u] - base);
          sum += x[e * 8 + u];
        }
        UNROLL for (int u = 0; u < 4; ++u)
          SPLIT(high, low, u, x[e * 8 + 2 * u] * P_SCALE, x[e * 8 + 2 * u + 1] * P_SCALE)
        scores[own_scores + row * SCORE_STRIDE + column] = high;
        scores[own_scores + row * SCORE_STRIDE + GROUPS + column] = low;
        group_sums[(own_rows + row) * GROUPS + column] = sum;
        for (int n = column; n < MATRIX_N; n += GROUPS) rescales[(own_rows + row) * MATRIX_N + n] = rescale;
      }
      FENCE();
      for (int row = lane; row < MATRIX_M; row += LANES_OF_SUBGROUP) {
        float next = row_max[own_rows + row];
        float sum = 0.0f;
        for (int g = 0; g < GROUPS; ++g) {
          next = max(next, group_max[(own_rows + row) * GROUPS + g]);
          sum += group_sums[(own_rows + row) * GROUPS + g];
        }
        row_max[own_rows + row] = next;
        row_sum[own_rows + row] = row_sum[own_rows + row] * rescales[(own_rows + row) * MATRIX_N] + sum;
      }
      MatrixSum rescale;
      coopMatLoadNV(rescale, rescales, own_rows * MATRIX_N, MATRIX_N, false);
      UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) sums[n] = MULTIPLY_ELEMENTWISE(sums[n], rescale);
      for (int j = 0; j < BC; j += MATRIX_K) {
        MatrixA high;
        MatrixA low;
        LOAD_PART(high, scores, j, 0);
        LOAD_PART(low, scores, j, 1);
        UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) {
          MatrixB values;
          coopMatLoadNV(values, tile_v, j * STRIDE_DV + n * MATRIX_N / 8, STRIDE_DV, false);
          sums[n] = coopMatMulAddNV(high, values, sums[n]);
          sums[n] = coopMatMulAddNV(low, values, sums[n]);
        }
      }
    }
    UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) {
      FENCE();
      coopMatStoreNV(sums[n], scores, own_scores, SCORE_STRIDE, false);
      FENCE();
      for (int e = lane; e < MATRIX_M * MATRIX_N; e += LANES_OF_SUBGROUP) {
        int row = e / MATRIX_N;
        int d = n * MATRIX_N + e % MATRIX_N;
        int i = first + own_rows + row;
        float sum = row_sum[own_rows + row];
        float value = sum > 0.0f ? SCORE(scores, row, e % MATRIX_N) / (P_SCALE * sum) : 0.0f;
        if (i < s_len && d < DV) STORE(o, ((batch * s_len + i) * heads + head) * DV + d, HALF_OF(value));
      }
    }
    for (int row = lane; row < MATRIX_M; row += LANES_OF_SUBGROUP) {
      int i = first + own_rows + row;
      float sum = row_sum[own_rows + row];
      if (i < s_len)
        STORE(lse, (batch * heads + head) * s_len + i, sum > 0.0f ? row_max[own_rows + row] + log(sum) : -INFINITY_F);
    }
  }
KERNEL_END
