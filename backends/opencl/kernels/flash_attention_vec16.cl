// Attention forward with a running softmax (Dao, FlashAttention-2, 2023, algorithm 1) over blocks of STREAM keys, up to MOST_PANELS panels
// of 16 query rows of one head per invocation. Scores are kept in units of log 2, so that the softmax is 2^x.
#define BINDINGS(X) X(0, R, float, q) X(1, R, float, k) X(2, R, float, v) X(3, W, float, o) X(4, W, float, lse)
#define CONSTANTS(X) X(0, int, s_len) X(1, int, t_len) X(2, int, heads) X(3, int, kv_heads) X(4, int, blocks) \
  X(5, int, items) X(6, float, scale) X(7, int, causal) X(8, int, panels)
#include "attention_vec16.inc"

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    const int head = (item / blocks) % heads, batch = item / blocks / heads, group = head / (heads / kv_heads);
    const int first = (item % blocks) * (16 * panels), end = IMIN(first + 16 * panels, s_len);
    const int stride = heads * D, key_stride = kv_heads * D;
    const int base = (batch * s_len * heads + head) * D, keys = (batch * t_len * kv_heads + group) * D;
    const int last = causal != 0 ? IMIN(t_len, end + t_len - s_len) : t_len;
    float16 query[MOST_PANELS * D], sums[MOST_PANELS * D], scores[ROWS_ROOM], most[MOST_PANELS], total[MOST_PANELS];
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      load_panel(query + p * D, q + base + (first + 16 * p) * stride, stride, end - first - 16 * p, scale * LOG2_E);
      for (int d = 0; d < D; ++d) sums[p * D + d] = (float16)(0.0f);
      most[p] = (float16)(NEVER);
      total[p] = (float16)(0.0f);
    }
    for (int j0 = 0; j0 < last; j0 += STREAM) {
      for (int p = 0; p < panels && first + 16 * p < end; ++p) {
        const int reach = causal != 0 ? first + 16 * p + t_len - s_len : t_len - 1;  // the last key that row 0 sees
        const int count = IMIN(STREAM, IMIN(t_len, reach + 16) - j0);
        if (count <= 0) continue;
        times_panel(scores, k + keys + j0 * key_stride, key_stride, count, query + p * D);
        if (causal != 0 && j0 + count - 1 > reach) {
          const float16 limit = ROW_INDEX + TO_FLOAT(reach - j0);
          for (int j = 0; j < count; ++j) scores[j] = limit >= (float16)(TO_FLOAT(j)) ? scores[j] : (float16)(NEVER);
        }
        float16 next = most[p];
        for (int j = 0; j < count; ++j) next = scores[j] > next ? scores[j] : next;
        const float16 fade = exp2_negative(most[p] - next);
        float16 sum = total[p] * fade;
        for (int j = 0; j < count; ++j) {
          scores[j] = exp2_negative(scores[j] - next);
          sum += scores[j];
        }
        most[p] = next;
        total[p] = sum;
        add_weighted(sums + p * D, fade, v + keys + j0 * key_stride, key_stride, count, scores);
      }
    }
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int count = IMIN(16, end - first - 16 * p);
      store_panel(sums + p * D, o + base + (first + 16 * p) * stride, stride, count, 1.0f / total[p]);
      const float16 row_lse = most[p] * LN_2 + log(total[p]);
      const float *from = (const float *)&row_lse;
      for (int i = 0; i < count; ++i) lse[(batch * heads + head) * s_len + first + 16 * p + i] = from[i];
    }
  }
KERNEL_END
