// dQ of attention, up to MOST_PANELS panels of 16 query rows of one head per invocation, keys streamed in blocks of STREAM.
// delta lies at the start of `extras`.
//   X = scale q k,  P = exp(logit(X) - lse),  dX = P (dO V^T - delta) logit'(X),  dQ = scale dX K
// OF_BIAS 1: the gradient of the bias in its place (see flash_attention_dq.simt), one panel and SPAN keys per invocation.
#ifndef OF_BIAS
#define OF_BIAS 0
#endif
#define BINDINGS(X) BACKWARD_BINDINGS(X) X(6, W, float, into)
#define CONSTANTS VEC16_CONSTANTS
#include "attention_vec16.inc"

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
#if OF_BIAS
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
    float16 sums[MOST_PANELS * D];
#endif
    const int group = head / (heads / kv_heads);
    DECODE_EXTRAS(items / blocks / heads, batch)
    DECODE_BIAS
    DECODE_BITS
    const int rows = batch * s_len * heads + head, keys = batch * t_len * kv_heads + group;
    const int scalars = (batch * heads + head) * s_len;
    __global const int *segments = extras + key_segments + batch * t_len;
    DECODE_SCALARS
    const float factor = scale * (soft_cap > 0.0f ? 1.0f / soft_cap : LOG2_E);
    const float tilt = HAS(SLOPES) ? NUMBER_AT(slopes_at + head) * LOG2_E : 0.0f;
    float16 query[MOST_PANELS * D], slope[MOST_PANELS * DV], scores[ROWS_ROOM], slopes[ROWS_ROOM];
    float16 log_total[MOST_PANELS], row_delta[MOST_PANELS];
    Sight sights[MOST_PANELS];
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p, count = IMIN(16, end - row);
      sights[p] = sight_of_queries(row, count, offset, left, right, prefix, t_len);
      if (HAS(SEGMENTS)) {
        sights[p].segment = load_segments(extras + extras_at + batch * s_len + row, count);
        sights[p].span = span_of(extras + extras_at + batch * s_len + row, count);
      }
      load_panel(query + p * D, q + (rows + row * heads) * D, heads * D, D, count, factor);
      load_panel(slope + p * DV, dout + (rows + row * heads) * DV, heads * DV, DV, count, 1.0f);
#if !OF_BIAS
      for (int d = 0; d < D; ++d) sums[p * D + d] = (float16)(0.0f);
#endif
      log_total[p] = load_rows(log_totals + scalars + row, count) * LOG2_E;
      row_delta[p] = load_rows(delta + scalars + row, count);
    }
#if OF_BIAS
    sights[0].begin = IMAX(sights[0].begin, span_begin);
    sights[0].last = IMIN(sights[0].last, span_end);
    const Sight whole = sights[0];
#else
    const Sight whole = sight_of_queries(first, end - first, offset, left, right, prefix, t_len);
#endif
    for (int j0 = whole.begin; j0 < whole.last; j0 += STREAM) {
      for (int p = 0; p < panels && first + 16 * p < end; ++p) {
        const Sight *sight = &sights[p];
        int from = IMAX(j0, sight->begin), to = IMIN(j0 + STREAM, sight->last);
        TRIM_KEYS(from, to)
        const int count = to - from;
        if (count <= 0 || (from >= prefix && to <= sight->window_begin)) continue;
        if (HAS(SEGMENTS) && apart(sight, segments + from, count)) continue;
        times_key_panel(scores, k + (keys + from * kv_heads) * D, kv_heads * D, count, query + p * D);
        times_value_panel(slopes, v + (keys + from * kv_heads) * DV, kv_heads * DV, count, slope + p * DV);
        const float16 place = ROW_INDEX + TO_FLOAT(first + 16 * p + offset - from);
        for (int j = 0; j < count; ++j) slopes[j] -= row_delta[p];
#if OF_BIAS
        if (soft_cap > 0.0f) cap_scores(scores, count, soft_cap);
#else
        if (soft_cap > 0.0f) cap(scores, slopes, count, soft_cap);
#endif
        if (HAS(SLOPES))
          for (int j = 0; j < count; ++j) scores[j] -= fabs(place - TO_FLOAT(j)) * tilt;
        ADD_BIASES(scores)
        for (int j = 0; j < count; ++j) scores[j] = exp2_negative(scores[j] - log_total[p]);
        if (to > prefix && (from < sight->all_begin || to > sight->all_end)) {
          const float16 lowest = place - TO_FLOAT(left), highest = place + TO_FLOAT(right);
          for (int j = IMAX(prefix - from, 0); j < count; ++j) {
            const float16 at = (float16)(TO_FLOAT(j));
            scores[j] = (highest >= at && lowest <= at) ? scores[j] : (float16)(0.0f);
          }
        }
        if (HAS(SEGMENTS))
          for (int j = 0; j < count; ++j)
            scores[j] = sight->segment == (int16)(segments[from + j]) ? scores[j] : (float16)(0.0f);
        HIDE_UNSET(scores, 0.0f)
        for (int j = 0; j < count; ++j) slopes[j] *= scores[j];
#if OF_BIAS
        for (int j = 0; j < count; ++j) sums[from - span_begin + j] += slopes[j];
#else
        add_keys(sums + p * D, (float16)(1.0f), k + (keys + from * kv_heads) * D, kv_heads * D, count, slopes);
#endif
      }
    }
#if OF_BIAS
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
