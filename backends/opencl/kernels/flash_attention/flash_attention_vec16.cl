// Attention forward with an online softmax (Dao, FlashAttention-2, 2023, algorithm 1) over blocks of STREAM keys, for up to
// MAX_PANELS panels of 16 query rows of one head per invocation. Logits are in units of log 2, so that the softmax uses 2^x.
#if BIAS
#define BINDINGS(X) X(0, R, float, q) X(1, R, float, k) X(2, R, float, v) X(3, R, int, extras) X(4, R, float, bias) \
  X(5, W, float, o) X(6, W, float, lse)
#else
#define BINDINGS(X) X(0, R, float, q) X(1, R, float, k) X(2, R, float, v) X(3, R, int, extras) X(4, W, float, o) \
  X(5, W, float, lse)
#endif
#define CONSTANTS VEC16_CONSTANTS
#include "attention_vec16.inc"

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    const int head = (item / blocks) % heads, batch = item / blocks / heads, group = head / (heads / kv_heads);
    DECODE_EXTRAS(items / blocks / heads, batch)
    DECODE_BIAS
    DECODE_BITMASK
    const int first = (item % blocks) * (16 * panels), end = IMIN(first + 16 * panels, s_len);
    const int rows = batch * s_len * heads + head, keys = batch * t_len * kv_heads + group;
    __global const int *segments = extras + key_segments + batch * t_len;
    const float factor = scale * (soft_cap > 0.0f ? 1.0f / soft_cap : LOG2_E);
    const float alibi_slope = HAS(SLOPES) ? NUMBER_AT(slopes_at + head) * LOG2_E : 0.0f;
    float16 query[MAX_PANELS * D], sums[MAX_PANELS * DV], scores[ROWS_CAPACITY], row_max[MAX_PANELS], row_sum[MAX_PANELS];
    MaskRange ranges[MAX_PANELS];
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p, count = IMIN(16, end - row);
      ranges[p] = mask_range_of_queries(row, count, offset, left, right, prefix, t_len);
      if (HAS(SEGMENTS)) {
        ranges[p].segment = load_segments(extras + extras_at + batch * s_len + row, count);
        ranges[p].span = span_of(extras + extras_at + batch * s_len + row, count);
      }
      load_panel(query + p * D, q + (rows + row * heads) * D, heads * D, D, count, factor);
      for (int d = 0; d < DV; ++d) sums[p * DV + d] = (float16)(0.0f);
      row_max[p] = HAS(SINK) ? (float16)(NUMBER_AT(sink_at + head) * LOG2_E) : (float16)(MASKED_SCORE);
      row_sum[p] = HAS(SINK) ? (float16)(1.0f) : (float16)(0.0f);
    }
    const MaskRange whole = mask_range_of_queries(first, end - first, offset, left, right, prefix, t_len);
    for (int j0 = whole.begin; j0 < whole.last; j0 += STREAM) {
      for (int p = 0; p < panels && first + 16 * p < end; ++p) {
        const MaskRange *range = &ranges[p];
        int from = IMAX(j0, range->begin), to = IMIN(j0 + STREAM, range->last);
        TRIM_KEYS(from, to)
        const int count = to - from;
        if (count <= 0 || (from >= prefix && to <= range->window_begin)) continue;
        if (HAS(SEGMENTS) && segments_disjoint(range, segments + from, count)) continue;
        times_key_panel(scores, k + (keys + from * kv_heads) * D, kv_heads * D, count, query + p * D);
        const float16 position = ROW_INDEX + TO_FLOAT(first + 16 * p + offset - from);
        if (soft_cap > 0.0f) cap_scores(scores, count, soft_cap);
        if (HAS(SLOPES))
          for (int j = 0; j < count; ++j) scores[j] -= fabs(position - TO_FLOAT(j)) * alibi_slope;
        ADD_BIASES(scores)
        if (to > prefix && (from < range->all_begin || to > range->all_end)) {
          const float16 window_first = position - TO_FLOAT(left), window_last = position + TO_FLOAT(right);
          for (int j = IMAX(prefix - from, 0); j < count; ++j) {
            const float16 at = (float16)(TO_FLOAT(j));
            scores[j] = (window_last >= at && window_first <= at) ? scores[j] : (float16)(MASKED_SCORE);
          }
        }
        if (HAS(SEGMENTS))
          for (int j = 0; j < count; ++j)
            scores[j] = range->segment == (int16)(segments[from + j]) ? scores[j] : (float16)(MASKED_SCORE);
        MASK_BY_BITS(scores, MASKED_SCORE)
        float16 next = row_max[p];
        for (int j = 0; j < count; ++j) next = scores[j] > next ? scores[j] : next;
        // For a row that has seen no key so far, so that 2^(MASKED_SCORE - base) is 0.
        const float16 base = next <= (float16)(0.5f * MASKED_SCORE) ? (float16)(0.0f) : next;
        const float16 rescale = exp2_negative(row_max[p] - base);
        float16 sum = row_sum[p] * rescale;
        for (int j = 0; j < count; ++j) {
          scores[j] = exp2_negative(scores[j] - base);
          sum += scores[j];
        }
        row_max[p] = next;
        row_sum[p] = sum;
        add_values(sums + p * DV, rescale, v + (keys + from * kv_heads) * DV, kv_heads * DV, count, scores);
      }
    }
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p, count = IMIN(16, end - row);
      const float16 nothing = (float16)(0.0f);
      const float16 inv_row_sum = row_sum[p] == nothing ? nothing : 1.0f / row_sum[p];
      const float16 row_lse = row_sum[p] == nothing ? (float16)(-INFINITY_F) : row_max[p] * LN_2 + log(row_sum[p]);
      store_panel(sums + p * DV, o + (rows + row * heads) * DV, heads * DV, DV, count, inv_row_sum);
      const float *from = (const float *)&row_lse;
      for (int i = 0; i < count; ++i) lse[(batch * heads + head) * s_len + row + i] = from[i];
    }
  }
KERNEL_END
