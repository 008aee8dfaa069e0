// dQ of attention, for up to MAX_PANELS panels of 16 query rows of one head per invocation, keys streamed in blocks of STREAM.
// `extras` begins with delta.
//   X = scale q k,  P = exp(logit(X) - lse),  dX = P (dO V^T - delta) logit'(X),  dQ = scale dX K
// COMPUTE_DBIAS 1: computes the gradient of the bias instead (see flash_attention_dq.simt), one panel and SPAN keys per invocation.
#ifndef COMPUTE_DBIAS
#define COMPUTE_DBIAS 0
#endif
#define BINDINGS(X) BACKWARD_BINDINGS(X) X(6, W, float, into)
#define CONSTANTS VEC16_CONSTANTS
#include "attention_vec16.inc"

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
#if COMPUTE_DBIAS
  DECODE_BIAS_ITEM(16)
  const int end = IMIN(first + 16, s_len);
  float16 sums[SPAN];
  for (int j = 0; j < SPAN; ++j) sums[j] = (float16)(0.0f);
  for (int sharer = 0; has_item && sharer < sharers; ++sharer) {
    DECODE_SHARER(sharer)
#else
  if (item < items) {
    const int head = (item / blocks) % heads, batch = item / blocks / heads;
    const int first = (item % blocks) * (16 * panels), end = IMIN(first + 16 * panels, s_len);
    float16 sums[MAX_PANELS * D];
#endif
    const int group = head / (heads / kv_heads);
    DECODE_EXTRAS(items / blocks / heads, batch)
    DECODE_BIAS
    DECODE_BITMASK
    const int rows = batch * s_len * heads + head, keys = batch * t_len * kv_heads + group;
    const int scalars = (batch * heads + head) * s_len;
    __global const int *segments = extras + key_segments + batch * t_len;
    DECODE_SCALARS
    const float factor = scale * (soft_cap > 0.0f ? 1.0f / soft_cap : LOG2_E);
    const float alibi_slope = HAS(SLOPES) ? NUMBER_AT(slopes_at + head) * LOG2_E : 0.0f;
    float16 query[MAX_PANELS * D], cotangent[MAX_PANELS * DV], scores[ROWS_CAPACITY], dscores[ROWS_CAPACITY];
    float16 row_lse[MAX_PANELS], row_delta[MAX_PANELS];
    MaskRange ranges[MAX_PANELS];
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p, count = IMIN(16, end - row);
      ranges[p] = mask_range_of_queries(row, count, offset, left, right, prefix, t_len);
      if (HAS(SEGMENTS)) {
        ranges[p].segment = load_segments(extras + extras_at + batch * s_len + row, count);
        ranges[p].span = span_of(extras + extras_at + batch * s_len + row, count);
      }
      load_panel(query + p * D, q + (rows + row * heads) * D, heads * D, D, count, factor);
      load_panel(cotangent + p * DV, dout + (rows + row * heads) * DV, heads * DV, DV, count, 1.0f);
#if !COMPUTE_DBIAS
      for (int d = 0; d < D; ++d) sums[p * D + d] = (float16)(0.0f);
#endif
      row_lse[p] = load_rows(lse_values + scalars + row, count) * LOG2_E;
      row_delta[p] = load_rows(delta + scalars + row, count);
    }
#if COMPUTE_DBIAS
    ranges[0].begin = IMAX(ranges[0].begin, span_begin);
    ranges[0].last = IMIN(ranges[0].last, span_end);
    const MaskRange whole = ranges[0];
#else
    const MaskRange whole = mask_range_of_queries(first, end - first, offset, left, right, prefix, t_len);
#endif
    for (int j0 = whole.begin; j0 < whole.last; j0 += STREAM) {
      for (int p = 0; p < panels && first + 16 * p < end; ++p) {
        const MaskRange *range = &ranges[p];
        int from = IMAX(j0, range->begin), to = IMIN(j0 + STREAM, range->last);
        TRIM_KEYS(from, to)
        const int count = to - from;
        if (count <= 0 || (from >= prefix && to <= range->window_begin)) continue;
        if (HAS(SEGMENTS) && segments_disjoint(range, segments + from, count)) continue;
        times_key_panel(scores, k + (keys + from * kv_heads) * D, kv_heads * D, count, query + p * D);
        times_value_panel(dscores, v + (keys + from * kv_heads) * DV, kv_heads * DV, count, cotangent + p * DV);
        const float16 position = ROW_INDEX + TO_FLOAT(first + 16 * p + offset - from);
        for (int j = 0; j < count; ++j) dscores[j] -= row_delta[p];
#if COMPUTE_DBIAS
        if (soft_cap > 0.0f) cap_scores(scores, count, soft_cap);
#else
        if (soft_cap > 0.0f) cap_scores_and_grads(scores, dscores, count, soft_cap);
#endif
        if (HAS(SLOPES))
          for (int j = 0; j < count; ++j) scores[j] -= fabs(position - TO_FLOAT(j)) * alibi_slope;
        ADD_BIASES(scores)
        for (int j = 0; j < count; ++j) scores[j] = exp2_negative(scores[j] - row_lse[p]);
        if (to > prefix && (from < range->all_begin || to > range->all_end)) {
          const float16 window_first = position - TO_FLOAT(left), window_last = position + TO_FLOAT(right);
          for (int j = IMAX(prefix - from, 0); j < count; ++j) {
            const float16 at = (float16)(TO_FLOAT(j));
            scores[j] = (window_last >= at && window_first <= at) ? scores[j] : (float16)(0.0f);
          }
        }
        if (HAS(SEGMENTS))
          for (int j = 0; j < count; ++j)
            scores[j] = range->segment == (int16)(segments[from + j]) ? scores[j] : (float16)(0.0f);
        MASK_BY_BITS(scores, 0.0f)
        for (int j = 0; j < count; ++j) dscores[j] *= scores[j];
#if COMPUTE_DBIAS
        for (int j = 0; j < count; ++j) sums[from - span_begin + j] += dscores[j];
#else
        add_keys(sums + p * D, (float16)(1.0f), k + (keys + from * kv_heads) * D, kv_heads * D, count, dscores);
#endif
      }
    }
#if COMPUTE_DBIAS
  }
  if (has_item)
    store_panel(sums, into + (bias_part * s_len + first) * t_len + span_begin, t_len, span_end - span_begin, end - first, 1.0f);
#else
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p;
      store_panel(sums + p * D, into + (rows + row * heads) * D, heads * D, D, IMIN(16, end - row), scale);
    }
  }
#endif
KERNEL_END
