// Attention backward of 16-bit floats on the matrix unit. COMPUTE_DKV 0: dQ of query rows, past which keys and values are
// streamed. COMPUTE_DKV 1: dK and dV of keys, past which the queries of every head of their group are streamed. With X the own
// rows of Q or K, Y those of dO or V, and X', Y' the streamed ones:
//   P = exp(logit(scale X X'^T) - lse),  dS = P (Y Y'^T - delta) softcap_grad,  dX = scale dS X',  dV = P dO
// `extras` begins with delta.
#if COMPUTE_DKV
#define OUTPUTS(X) X(6, W, uint16_t, dk) X(7, W, uint16_t, dv)
#else
#define OUTPUTS(X) X(6, W, uint16_t, dq)
#endif
#define BINDINGS(X) X(0, R, uint16_t, q) X(1, R, uint16_t, k) X(2, R, uint16_t, v) X(3, R, uint16_t, dout) \
  LOGIT_BINDING(X) X(5, R, int, extras) OUTPUTS(X)
// blocks: of own rows per head (COMPUTE_DKV 1: per key head)
#define CONSTANTS(X) X(0, int, s_len) X(1, int, t_len) X(2, int, heads) X(3, int, kv_heads) X(4, int, blocks) \
  X(5, int, items) X(6, float, scale) EXTRA_CONSTANTS(X)
#include "attention_matrix.inc"
#define SHARED(X) X(uvec4, own_x, (OWN_ROWS * STRIDE_D)) X(uvec4, own_y, (OWN_ROWS * STRIDE_DV)) X(uvec4, tile_x, (BC * STRIDE_D)) \
  X(uvec4, tile_y, (BC * STRIDE_DV)) X(uvec4, scores, (OWN_ROWS * SCORE_STRIDE)) X(uvec4, dscores, (OWN_ROWS * SCORE_STRIDE))

#extension GL_KHR_shader_subgroup_arithmetic : require

// Stores one matrix of an output through the subgroup's rows of `scores`.
#define STORE_MATRIX(matrix, name, n, length, heads_of, head_of, width, factor)                                \
  {                                                                                                            \
    FENCE();                                                                                                   \
    coopMatStoreNV(matrix, scores, own_scores, SCORE_STRIDE, false);                                           \
    FENCE();                                                                                                   \
    for (int e = lane; e < MATRIX_M * MATRIX_N; e += LANES_OF_SUBGROUP) {                                      \
      int mesh_i = first + own_rows + e / MATRIX_N;                                                            \
      int mesh_d = (n) * MATRIX_N + e % MATRIX_N;                                                              \
      float mesh_x = SCORE(scores, e / MATRIX_N, e % MATRIX_N) * (factor);                                     \
      if (mesh_i < (length) && mesh_d < (width))                                                               \
        STORE(name, ((batch * (length) + mesh_i) * (heads_of) + (head_of)) * (width) + mesh_d, HALF_OF(mesh_x)); \
    }                                                                                                          \
  }

KERNEL_BEGIN
  int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    int own = int(gl_SubgroupID);
    int lane = int(gl_SubgroupInvocationID);
    int own_rows = own * MATRIX_M;
    int own_scores = own_rows * SCORE_STRIDE;
    int first = item % blocks * OWN_ROWS;
#if COMPUTE_DKV
    int count = IMIN(OWN_ROWS, t_len - first);
    int group = item / blocks % kv_heads;
    int batch = item / blocks / kv_heads;
    int head_begin = group * (heads / kv_heads);
    int head_end = head_begin + heads / kv_heads;
    DECODE_EXTRAS(items / blocks / kv_heads, batch)
    int begin = prefix > first ? 0 : IMAX(first - offset - right, 0);
    int last = prefix > first ? s_len : IMIN(first + count - offset + left, s_len);
    LOAD_ROWS(own_x, k, OWN_ROWS, WORDS_D, (batch * t_len * kv_heads + group) * D, first, t_len, D, kv_heads * D)
    LOAD_ROWS(own_y, v, OWN_ROWS, WORDS_DV, (batch * t_len * kv_heads + group) * DV, first, t_len, DV, kv_heads * DV)
    MatrixSum sums_v[DVP / MATRIX_N];
    UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) sums_v[n] = MatrixSum(0.0f);
#else
    int count = IMIN(OWN_ROWS, s_len - first);
    int head_begin = item / blocks % heads;
    int head_end = head_begin + 1;
    int batch = item / blocks / heads;
    int group = head_begin / (heads / kv_heads);
    DECODE_EXTRAS(items / blocks / heads, batch)
    int begin = IMIN(IMAX(first + offset - left, 0), t_len);
    int last = IMIN(first + count + offset + right, t_len);
    if (prefix > 0) {
      last = begin < last ? IMAX(last, prefix) : prefix;
      begin = 0;
    }
    ALIGN_TO_STEPS(begin)
    LOAD_ROWS(own_x, q, OWN_ROWS, WORDS_D, (batch * s_len * heads + head_begin) * D, first, s_len, D, heads * D)
    LOAD_ROWS(own_y, dout, OWN_ROWS, WORDS_DV, (batch * s_len * heads + head_begin) * DV, first, s_len, DV, heads * DV)
#endif
    MatrixSum sums_x[DP / MATRIX_N];
    UNROLL for (int n = 0; n < DP / MATRIX_N; ++n) sums_x[n] = MatrixSum(0.0f);
    for (int head = head_begin; head < head_end; ++head) {
      int scalars = (batch * heads + head) * s_len;
      DECODE_HEAD
      for (int tile = begin; tile < last; tile += BC) {
#if COMPUTE_DKV
        SKIP_QUERY_TILES(tile, last)
#else
        SKIP_KEYS(tile, last)
#endif
        BARRIER();
#if COMPUTE_DKV
        LOAD_ROWS(tile_x, q, BC, WORDS_D, (batch * s_len * heads + head) * D, tile, s_len, D, heads * D)
        LOAD_ROWS(tile_y, dout, BC, WORDS_DV, (batch * s_len * heads + head) * DV, tile, s_len, DV, heads * DV)
#else
        LOAD_ROWS(tile_x, k, BC, WORDS_D, (batch * t_len * kv_heads + group) * D, tile, t_len, D, kv_heads * D)
        LOAD_ROWS(tile_y, v, BC, WORDS_DV, (batch * t_len * kv_heads + group) * DV, tile, t_len, DV, kv_heads * DV)
#endif
        BARRIER();
        SCORES(scores, own_x, tile_x, WORDS_D)
        SCORES(dscores, own_y, tile_y, WORDS_DV)
        FENCE();
        float p[ITEMS * 8];
        float ds[ITEMS * 8];
        float item_max = 0.0f;
        UNROLL for (int e = 0; e < ITEMS; ++e) {
          int row = ITEM_ROW(e);
          int column = ITEM_GROUP(e) * 8;
          UNROLL for (int u = 0; u < 8; ++u) {
#if COMPUTE_DKV
            int i = tile + column + u;
            int j = first + own_rows + row;
#else
            int i = first + own_rows + row;
            int j = tile + column + u;
#endif
            float logit = SCORE(scores, row, column + u) * scale;
            float softcap_grad;
            bool visible;
            LOGIT(logit, softcap_grad, visible, i, j)
            p[e * 8 + u] = 0.0f;
            ds[e * 8 + u] = 0.0f;
            if (visible) {
              p[e * 8 + u] = exp(logit - LSE(scalars + i));
              ds[e * 8 + u] = p[e * 8 + u] * (SCORE(dscores, row, column + u) - NUMBER_AT(scalars + i)) * softcap_grad;
            }
            item_max = max(item_max, abs(ds[e * 8 + u]));
          }
        }
        float scale_up = 1.0f;
        float scale_down = 1.0f;
#if !MATRIX_BF16
        // Scales by a power of two into the range where f16 is normal, for the low parts too.
        uint exponent = clamp((floatBitsToUint(subgroupMax(item_max)) >> 23) & 255u, 10u, 253u);
        scale_up = uintBitsToFloat((263u - exponent) << 23);
        scale_down = uintBitsToFloat((exponent - 9u) << 23);
#endif
        FENCE();
        UNROLL for (int e = 0; e < ITEMS; ++e) {
          int at = own_scores + ITEM_ROW(e) * SCORE_STRIDE + ITEM_GROUP(e);
          uvec4 high;
          uvec4 low;
          UNROLL for (int u = 0; u < 4; ++u)
            SPLIT(high, low, u, ds[e * 8 + 2 * u] * scale_up, ds[e * 8 + 2 * u + 1] * scale_up)
          dscores[at] = high;
          dscores[at + GROUPS] = low;
#if COMPUTE_DKV
          UNROLL for (int u = 0; u < 4; ++u)
            SPLIT(high, low, u, p[e * 8 + 2 * u] * P_SCALE, p[e * 8 + 2 * u + 1] * P_SCALE)
          scores[at] = high;
          scores[at + GROUPS] = low;
#endif
        }
        FENCE();
        UNROLL for (int n = 0; n < DP / MATRIX_N; ++n) {
          MatrixSum part = MatrixSum(0.0f);
          for (int j = 0; j < BC; j += MATRIX_K) {
            MatrixA high;
            MatrixA low;
            MatrixB other;
            LOAD_PART(high, dscores, j, 0);
            LOAD_PART(low, dscores, j, 1);
            coopMatLoadNV(other, tile_x, j * STRIDE_D + n * MATRIX_N / 8, STRIDE_D, false);
            part = coopMatMulAddNV(high, other, part);
            part = coopMatMulAddNV(low, other, part);
          }
          sums_x[n] += part * scale_down;
        }
#if COMPUTE_DKV
        for (int j = 0; j < BC; j += MATRIX_K) {
          MatrixA high;
          MatrixA low;
          LOAD_PART(high, scores, j, 0);
          LOAD_PART(low, scores, j, 1);
          UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) {
            MatrixB other;
            coopMatLoadNV(other, tile_y, j * STRIDE_DV + n * MATRIX_N / 8, STRIDE_DV, false);
            sums_v[n] = coopMatMulAddNV(high, other, sums_v[n]);
            sums_v[n] = coopMatMulAddNV(low, other, sums_v[n]);
          }
        }
#endif
      }
    }
#if COMPUTE_DKV
    UNROLL for (int n = 0; n < DP / MATRIX_N; ++n) STORE_MATRIX(sums_x[n], dk, n, t_len, kv_heads, group, D, scale)
    UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n)
      STORE_MATRIX(sums_v[n], dv, n, t_len, kv_heads, group, DV, 1.0f / P_SCALE)
#else
    UNROLL for (int n = 0; n < DP / MATRIX_N; ++n) STORE_MATRIX(sums_x[n], dq, n, s_len, heads, head_begin, D, scale)
#endif
  }
KERNEL_END
