// dK and dV of attention, for up to MAX_PANELS panels of 16 key rows of one key head per invocation, the queries of every head of
// its group streamed in blocks of STREAM. `extras` begins with delta.
//   X = scale q k,  P = exp(logit(X) - lse),  dV = P^T dO,  dX = P (dO V^T - delta) logit'(X),  dK = scale dX^T Q
#define BINDINGS(X) BACKWARD_BINDINGS(X) X(6, W, float, dk) X(7, W, float, dv)
#define CONSTANTS VEC16_CONSTANTS
#include "attention_vec16.inc"

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    const int group = (item / blocks) % kv_heads, batch = item / blocks / kv_heads, span = heads / kv_heads;
    DECODE_EXTRAS(items / blocks / kv_heads, batch)
    const int first = (item % blocks) * (16 * panels), end = IMIN(first + 16 * panels, t_len);
    const int base = batch * t_len * kv_heads + group;
    __global const int *segments = extras + extras_at + batch * s_len;
    DECODE_SCALARS
    const float factor = scale * (soft_cap > 0.0f ? 1.0f / soft_cap : LOG2_E);
    float16 key[MAX_PANELS * D], value[MAX_PANELS * DV], sum_k[MAX_PANELS * D], sum_v[MAX_PANELS * DV];
    float16 weights[ROWS_CAPACITY], dscores[ROWS_CAPACITY];
    MaskRange ranges[MAX_PANELS];
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p, count = IMIN(16, end - row);
      ranges[p] = mask_range_of_keys(row, count, offset, left, right, prefix, s_len);
      if (HAS(SEGMENTS)) {
        ranges[p].segment = load_segments(extras + key_segments + batch * t_len + row, count);
        ranges[p].span = span_of(extras + key_segments + batch * t_len + row, count);
      }
      load_panel(key + p * D, k + (base + row * kv_heads) * D, kv_heads * D, D, count, factor);
      load_panel(value + p * DV, v + (base + row * kv_heads) * DV, kv_heads * DV, DV, count, 1.0f);
      for (int d = 0; d < D; ++d) sum_k[p * D + d] = (float16)(0.0f);
      for (int d = 0; d < DV; ++d) sum_v[p * DV + d] = (float16)(0.0f);
    }
    const MaskRange whole = mask_range_of_keys(first, end - first, offset, left, right, prefix, s_len);
    for (int head = group * span; head < (group + 1) * span; ++head) {
      const int rows = batch * s_len * heads + head, scalars = (batch * heads + head) * s_len;
      DECODE_BIAS
      DECODE_BITMASK
      const float alibi_slope = HAS(SLOPES) ? NUMBER_AT(slopes_at + head) * LOG2_E : 0.0f;
      for (int i0 = whole.begin; i0 < whole.last; i0 += STREAM) {
        for (int p = 0; p < panels && first + 16 * p < end; ++p) {
          const MaskRange *range = &ranges[p];
          int from = IMAX(i0, range->begin), to = IMIN(i0 + STREAM, range->last);
#if BITMASK
          const int word = (first + 16 * p) / 32, shift = (first + 16 * p) & 31;
          const int2 visible = visible_queries(extras + summary_at + word, BITMASK_WORDS, shift, from, to);
          from = visible.x, to = visible.y;
#endif
          const int count = to - from;
          if (count <= 0) continue;
          if (HAS(SEGMENTS) && segments_disjoint(range, segments + from, count)) continue;
          times_key_panel(weights, q + (rows + from * heads) * D, heads * D, count, key + p * D);
          times_value_panel(dscores, dout + (rows + from * heads) * DV, heads * DV, count, value + p * DV);
          // The positions of the keys, relative to the query `from`.
          const float16 position = ROW_INDEX + TO_FLOAT(first + 16 * p - offset - from);
          for (int i = 0; i < count; ++i) dscores[i] -= delta[scalars + from + i];
          if (soft_cap > 0.0f) cap_scores_and_grads(weights, dscores, count, soft_cap);
          if (HAS(SLOPES))
            for (int i = 0; i < count; ++i) weights[i] -= fabs(position - TO_FLOAT(i)) * alibi_slope;
#if BIAS
          __global const float *biases = bias + bias_at + from * t_len + first + 16 * p;
          for (int i = 0; i < count; ++i) weights[i] += load_rows(biases + i * t_len, IMIN(16, end - first - 16 * p)) * LOG2_E;
#endif
          for (int i = 0; i < count; ++i)
            weights[i] = exp2_negative(weights[i] - lse_values[scalars + from + i] * LOG2_E);
          if (from < range->all_begin || to > range->all_end) {
            const float16 before = ROW_INDEX + TO_FLOAT(first + 16 * p);
            const float16 window_first = position - TO_FLOAT(right), window_last = position + TO_FLOAT(left);
            for (int i = 0; i < count; ++i) {
              const float16 at = (float16)(TO_FLOAT(i));
              weights[i] = (window_first <= at && window_last >= at) || before < (float16)(TO_FLOAT(prefix)) ? weights[i]
                                                                                                  : (float16)(0.0f);
            }
          }
          if (HAS(SEGMENTS))
            for (int i = 0; i < count; ++i)
              weights[i] = range->segment == (int16)(segments[from + i]) ? weights[i] : (float16)(0.0f);
#if BITMASK
          for (int i = 0; i < count; ++i) {
            const int16 bits = (int16)(extras[bitmask_at + (from + i) * BITMASK_WORDS + word] >> shift) & ROW_BITS;
            weights[i] = bits != (int16)(0) ? weights[i] : (float16)(0.0f);
          }
#endif
          for (int i = 0; i < count; ++i) dscores[i] *= weights[i];
          add_values(sum_v + p * DV, (float16)(1.0f), dout + (rows + from * heads) * DV, heads * DV, count, weights);
          add_keys(sum_k + p * D, (float16)(1.0f), q + (rows + from * heads) * D, heads * D, count, dscores);
        }
      }
    }
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p, count = IMIN(16, end - row);
      store_panel(sum_k + p * D, dk + (base + row * kv_heads) * D, kv_heads * D, D, count, scale);
      store_panel(sum_v + p * DV, dv + (base + row * kv_heads) * DV, kv_heads * DV, DV, count, 1.0f);
    }
  }
KERNEL_END
