// dQ of attention, up to MOST_PANELS panels of 16 query rows of one head per invocation, keys streamed in blocks of STREAM.
//   P = exp(scale q k - lse),  dS = P (dO V^T - delta),  dQ = scale dS K
#define BINDINGS(X) X(0, R, float, q) X(1, R, float, k) X(2, R, float, v) X(3, R, float, dout) X(4, R, float, lse) \
  X(5, R, float, delta) X(6, W, float, dq)
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
    const int scalars = (batch * heads + head) * s_len;
    const int last = causal != 0 ? IMIN(t_len, end + t_len - s_len) : t_len;
    float16 query[MOST_PANELS * D], slope[MOST_PANELS * D], sums[MOST_PANELS * D], scores[ROWS_ROOM], slopes[ROWS_ROOM];
    float16 log_total[MOST_PANELS], row_delta[MOST_PANELS];
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p, count = end - row;
      load_panel(query + p * D, q + base + row * stride, stride, count, scale * LOG2_E);
      load_panel(slope + p * D, dout + base + row * stride, stride, count, 1.0f);
      for (int d = 0; d < D; ++d) sums[p * D + d] = (float16)(0.0f);
      log_total[p] = load_rows(lse + scalars + row, count) * LOG2_E;
      row_delta[p] = load_rows(delta + scalars + row, count);
    }
    for (int j0 = 0; j0 < last; j0 += STREAM) {
      for (int p = 0; p < panels && first + 16 * p < end; ++p) {
        const int reach = causal != 0 ? first + 16 * p + t_len - s_len : t_len - 1;  // the last key that row 0 sees
        const int count = IMIN(STREAM, IMIN(t_len, reach + 16) - j0);
        if (count <= 0) continue;
        times_panel(scores, k + keys + j0 * key_stride, key_stride, count, query + p * D);
        times_panel(slopes, v + keys + j0 * key_stride, key_stride, count, slope + p * D);
        const float16 limit = ROW_INDEX + TO_FLOAT(reach - j0);
        for (int j = 0; j < count; ++j) {
          float16 weight = exp2_negative(scores[j] - log_total[p]);
          if (causal != 0) weight = limit >= (float16)(TO_FLOAT(j)) ? weight : (float16)(0.0f);
          slopes[j] = weight * (slopes[j] - row_delta[p]);
        }
        add_weighted(sums + p * D, (float16)(1.0f), k + keys + j0 * key_stride, key_stride, count, slopes);
      }
    }
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p;
      store_panel(sums + p * D, dq + base + row * stride, stride, IMIN(16, end - row), scale);
    }
  }
KERNEL_END
