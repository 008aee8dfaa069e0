// dQ of attention, up to MOST_PANELS panels of 16 query rows of one head per invocation, keys streamed in blocks of STREAM.
// delta lies at the start of `extras`.
//   X = scale q k,  P = exp(logit(X) - lse),  dX = P (dO V^T - delta) logit'(X),  dQ = scale dX K
#define BINDINGS(X) BACKWARD_BINDINGS(X) X(6, W, float, dq)
#define CONSTANTS VEC16_CONSTANTS
#include "attention_vec16.inc"

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    const int head = (item / blocks) % heads, batch = item / blocks / heads, group = head / (heads / kv_heads);
    DECODE_EXTRAS(items / blocks / heads, batch)
    DECODE_BIAS
    DECODE_BITS
    const int first = (item % blocks) * (16 * panels), end = IMIN(first + 16 * panels, s_len);
    const int rows = batch * s_len * heads + head, keys = batch * t_len * kv_heads + group;
    const int scalars = (batch * heads + head) * s_len;
    __global const int *segments = extras + key_segments + batch * t_len;
    DECODE_SCALARS
    const float factor = scale * (soft_cap > 0.0f ? 1.0f / soft_cap : LOG2_E);
    const float tilt = HAS(SLOPES) ? NUMBER_AT(slopes_at + head) * LOG2_E : 0.0f;
    float16 query[MOST_PANELS * D], slope[MOST_PANELS * DV], sums[MOST_PANELS * D], scores[ROWS_ROOM], slopes[ROWS_ROOM];
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
      for (int d = 0; d < D; ++d) sums[p * D + d] = (float16)(0.0f);
      log_total[p] = load_rows(log_totals + scalars + row, count) * LOG2_E;
      row_delta[p] = load_rows(delta + scalars + row, count);
    }
    const Sight whole = sight_of_queries(first, end - first, offset, left, right, prefix, t_len);
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
        if (soft_cap > 0.0f) cap(scores, slopes, count, soft_cap);
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
        add_keys(sums + p * D, (float16)(1.0f), k + (keys + from * kv_heads) * D, kv_heads * D, count, slopes);
      }
    }
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p;
      store_panel(sums + p * D, dq + (rows + row * heads) * D, heads * D, D, IMIN(16, end - row), scale);
    }
  }
KERNEL_END
