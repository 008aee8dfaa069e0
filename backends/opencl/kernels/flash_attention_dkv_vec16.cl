// dK and dV of attention, up to MOST_PANELS panels of 16 key rows of one key head per invocation, the queries of every head of its group
// streamed in blocks of STREAM.
//   P = exp(scale q k - lse),  dV = P^T dO,  dS = P (dO V^T - delta),  dK = scale dS^T Q
#define BINDINGS(X) X(0, R, float, q) X(1, R, float, k) X(2, R, float, v) X(3, R, float, dout) X(4, R, float, lse) \
  X(5, R, float, delta) X(6, W, float, dk) X(7, W, float, dv)
#define CONSTANTS(X) X(0, int, s_len) X(1, int, t_len) X(2, int, heads) X(3, int, kv_heads) X(4, int, blocks) \
  X(5, int, items) X(6, float, scale) X(7, int, causal) X(8, int, panels)
#include "attention_vec16.inc"

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    const int group = (item / blocks) % kv_heads, batch = item / blocks / kv_heads, span = heads / kv_heads;
    const int first = (item % blocks) * (16 * panels), end = IMIN(first + 16 * panels, t_len);
    const int stride = heads * D, key_stride = kv_heads * D;
    const int base = (batch * t_len * kv_heads + group) * D;
    float16 key[MOST_PANELS * D], value[MOST_PANELS * D], sum_k[MOST_PANELS * D], sum_v[MOST_PANELS * D];
    float16 weights[ROWS_ROOM], slopes[ROWS_ROOM];
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p;
      load_panel(key + p * D, k + base + row * key_stride, key_stride, end - row, scale * LOG2_E);
      load_panel(value + p * D, v + base + row * key_stride, key_stride, end - row, 1.0f);
      for (int d = 0; d < D; ++d) sum_k[p * D + d] = sum_v[p * D + d] = (float16)(0.0f);
    }
    for (int head = group * span; head < (group + 1) * span; ++head) {
      const int queries = (batch * s_len * heads + head) * D, scalars = (batch * heads + head) * s_len;
      for (int i0 = causal != 0 ? IMAX(first + s_len - t_len, 0) : 0; i0 < s_len; i0 += STREAM) {
        for (int p = 0; p < panels && first + 16 * p < end; ++p) {
          const int since = causal != 0 ? IMAX(first + 16 * p + s_len - t_len, 0) : 0;  // the first query that sees a row
          const int from = IMAX(i0, since), count = IMIN(i0 + STREAM, s_len) - from;
          if (count <= 0) continue;
          times_panel(weights, q + queries + from * stride, stride, count, key + p * D);
          times_panel(slopes, dout + queries + from * stride, stride, count, value + p * D);
          const float16 limit = ROW_INDEX + TO_FLOAT(first + 16 * p + s_len - t_len - from);
          for (int i = 0; i < count; ++i) {
            float16 weight = exp2_negative(weights[i] - lse[scalars + from + i] * LOG2_E);
            if (causal != 0) weight = limit <= (float16)(TO_FLOAT(i)) ? weight : (float16)(0.0f);
            weights[i] = weight;
            slopes[i] = weight * (slopes[i] - delta[scalars + from + i]);
          }
          add_weighted(sum_v + p * D, (float16)(1.0f), dout + queries + from * stride, stride, count, weights);
          add_weighted(sum_k + p * D, (float16)(1.0f), q + queries + from * stride, stride, count, slopes);
        }
      }
    }
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p, count = IMIN(16, end - row);
      store_panel(sum_k + p * D, dk + base + row * key_stride, key_stride, count, scale);
      store_panel(sum_v + p * D, dv + base + row * key_stride, key_stride, count, 1.0f);
    }
  }
KERNEL_END
