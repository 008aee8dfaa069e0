// dK and dV of attention, up to MOST_PANELS panels of 16 key rows of one key head per invocation, the queries of every head of
// its group streamed in blocks of STREAM. delta lies at the start of `extras`.
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
    float16 key[MOST_PANELS * D], value[MOST_PANELS * DV], sum_k[MOST_PANELS * D], sum_v[MOST_PANELS * DV];
    float16 weights[ROWS_ROOM], slopes[ROWS_ROOM];
    Sight sights[MOST_PANELS];
    for (int p = 0; p < panels && first + 16 * p < end; ++p) {
      const int row = first + 16 * p, count = IMIN(16, end - row);
      sights[p] = sight_of_keys(row, count, offset, left, right, prefix, s_len);
      if (HAS(SEGMENTS)) {
        sights[p].segment = load_segments(extras + key_segments + batch * t_len + row, count);
        sights[p].span = span_of(extras + key_segments + batch * t_len + row, count);
      }
      load_panel(key + p * D, k + (base + row * kv_heads) * D, kv_heads * D, D, count, factor);
      load_panel(value + p * DV, v + (base + row * kv_heads) * DV, kv_heads * DV, DV, count, 1.0f);
      for (int d = 0; d < D; ++d) sum_k[p * D + d] = (float16)(0.0f);
      for (int d = 0; d < DV; ++d) sum_v[p * DV + d] = (float16)(0.0f);
    }
    const Sight whole = sight_of_keys(first, end - first, offset, left, right, prefix, s_len);
    for (int head = group * span; head < (group + 1) * span; ++head) {
      const int rows = batch * s_len * heads + head, scalars = (batch * heads + head) * s_len;
      DECODE_BIAS
      DECODE_BITS
      const float tilt = HAS(SLOPES) ? NUMBER_AT(slopes_at + head) * LOG2_E : 0.0f;
      for (int i0 = whole.begin; i0 < whole.last; i0 += STREAM) {
        for (int p = 0; p < panels && first + 16 * p < end; ++p) {
          const Sight *sight = &sights[p];
          int from = IMAX(i0, sight->begin), to = IMIN(i0 + STREAM, sight->last);
#if BITS
          const int word = (first + 16 * p) / 32, shift = (first + 16 * p) & 31;
          const int2 seen = seen_queries(extras + seen_at + word, BITS_WORDS, shift, from, to);
          from = seen.x, to = seen.y;
#endif
          const int count = to - from;
          if (count <= 0) continue;
          if (HAS(SEGMENTS) && apart(sight, segments + from, count)) continue;
          times_key_panel(weights, q + (rows + from * heads) * D, heads * D, count, key + p * D);
          times_value_panel(slopes, dout + (rows + from * heads) * DV, heads * DV, count, value + p * DV);
          // Where the keys stand, counted from the query `from`.
          const float16 place = ROW_INDEX + TO_FLOAT(first + 16 * p - offset - from);
          for (int i = 0; i < count; ++i) slopes[i] -= delta[scalars + from + i];
          if (soft_cap > 0.0f) cap(weights, slopes, count, soft_cap);
          if (HAS(SLOPES))
            for (int i = 0; i < count; ++i) weights[i] -= fabs(place - TO_FLOAT(i)) * tilt;
#if BIAS
          __global const float *biases = bias + bias_at + from * t_len + first + 16 * p;
          for (int i = 0; i < count; ++i) weights[i] += load_rows(biases + i * t_len, IMIN(16, end - first - 16 * p)) * LOG2_E;
#endif
          for (int i = 0; i < count; ++i)
            weights[i] = exp2_negative(weights[i] - log_totals[scalars + from + i] * LOG2_E);
          if (from < sight->all_begin || to > sight->all_end) {
            const float16 before = ROW_INDEX + TO_FLOAT(first + 16 * p);
            const float16 lowest = place - TO_FLOAT(right), highest = place + TO_FLOAT(left);
            for (int i = 0; i < count; ++i) {
              const float16 at = (float16)(TO_FLOAT(i));
              weights[i] = (lowest <= at && highest >= at) || before < (float16)(TO_FLOAT(prefix)) ? weights[i]
                                                                                                  : (float16)(0.0f);
            }
          }
          if (HAS(SEGMENTS))
            for (int i = 0; i < count; ++i)
              weights[i] = sight->segment == (int16)(segments[from + i]) ? weights[i] : (float16)(0.0f);
#if BITS
          for (int i = 0; i < count; ++i) {
            const int16 bits = (int16)(extras[bits_at + (from + i) * BITS_WORDS + word] >> shift) & ROW_BITS;
            weights[i] = bits != (int16)(0) ? weights[i] : (float16)(0.0f);
          }
#endif
          for (int i = 0; i < count; ++i) slopes[i] *= weights[i];
          add_values(sum_v + p * DV, (float16)(1.0f), dout + (rows + from * heads) * DV, heads * DV, count, weights);
          add_keys(sum_k + p * D, (float16)(1.0f), q + (rows + from * heads) * D, heads * D, count, slopes);
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
