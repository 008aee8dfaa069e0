// Attention backward of 16-bit floats on the matrix unit. COMPUTE_DKV 0: dQ of query rows, past which keys and values are
// streamed. COMPUTE_DKV 1: dK and dV of keys, past which the queries of every head of their group are streamed. With X the own
// rows of Q or K, Y those of dO or V, and X', Y' the streamed ones:
//   P = exp(logit(scale X X'^T) - lse),  dS = P (Y Y'^T - delta) softcap_grad,  dX = scale dS X',  dV = P dO
// `extras` begins with delta. WIDE_ROWS: S is a multiple of four.
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
#include "attention_matrix_mask.inc"
#extension GL_KHR_shader_subgroup_arithmetic : require
// Streamed rows lie as they are, for the scores, and turned, for the sums. Own rows stay in registers where there is room
// (OWN_X_HELD, OWN_Y_HELD), else in workgroup memory.
#define X_AT 0
#define Y_AT (X_AT + BC * STRIDE_D)
#define X_TURNED_AT (Y_AT + BC * STRIDE_DV)
#define Y_TURNED_AT (X_TURNED_AT + TURNED_WORDS(DP, WORDS_BC, MATRIX_N))
#define SCORES_AT (Y_TURNED_AT + COMPUTE_DKV * TURNED_WORDS(DVP, WORDS_BC, MATRIX_N))
#define SCALARS_AT (SCORES_AT + OWN_ROWS * SCORE_STRIDE)  // lse, in units of log2, and delta of streamed queries
#define OWN_X_AT (SCALARS_AT + COMPUTE_DKV * BC / 2)
#define OWN_Y_AT (OWN_X_AT + (1 - OWN_X_HELD) * OWN_ROWS * STRIDE_D)
#define END_AT (OWN_Y_AT + (1 - OWN_Y_HELD) * OWN_ROWS * STRIDE_DV)
// Rows that go to registers come through the same memory, before anything else does.
#define SHARED(X) X(uvec4, memory, LARGER(END_AT, LARGER(OWN_X_HELD * OWN_ROWS * STRIDE_D, OWN_Y_HELD * OWN_ROWS * STRIDE_DV)))
#if OWN_X_HELD
#define OWN_X(matrix, k) matrix = own_x[k];
#else
#define OWN_X(matrix, k) LOAD_OWN(matrix, OWN_X_AT, DP, k);
#endif
#if OWN_Y_HELD
#define OWN_Y(matrix, k) matrix = own_y[k];
#else
#define OWN_Y(matrix, k) LOAD_OWN(matrix, OWN_Y_AT, DVP, k);
#endif
#if COMPUTE_DKV
#define LOAD_X(at) LOAD_OWN_ROWS(at, k, WORDS_D, (batch * t_len * kv_heads + group) * D, first, t_len, D, kv_heads * D)
#define LOAD_Y(at) LOAD_OWN_ROWS(at, v, WORDS_DV, (batch * t_len * kv_heads + group) * DV, first, t_len, DV, kv_heads * DV)
#define STREAMED_HEADS heads
#define HOLD_TILES(from)                                                                              \
  HOLD_TILE(held_x, places_x, 1, DP, q, base_x, from, s_len, D, heads * D)                            \
  HOLD_TILE(held_y, places_y, 1, DVP, dout, base_y, from, s_len, DV, heads * DV)                      \
  HOLD_SCALARS(from)
#define SKIP_TILES(tile) SKIP_QUERY_TILES(tile, last)
#define ALL_SHOWN ALL_QUERIES_SHOWN
#else
#define LOAD_X(at) LOAD_OWN_ROWS(at, q, WORDS_D, (batch * s_len * heads + head_begin) * D, first, s_len, D, heads * D)
#define LOAD_Y(at) LOAD_OWN_ROWS(at, dout, WORDS_DV, (batch * s_len * heads + head_begin) * DV, first, s_len, DV, heads * DV)
#define STREAMED_HEADS kv_heads
#define HOLD_TILES(from)                                                                              \
  HOLD_TILE(held_x, places_x, 1, DP, k, base_x, from, t_len, D, kv_heads * D)                         \
  HOLD_TILE(held_y, places_y, 0, DVP, v, base_y, from, t_len, DV, kv_heads * DV)
#define SKIP_TILES(tile) SKIP_KEYS(tile, last)
#define ALL_SHOWN ALL_KEYS_SHOWN
#endif

#if COMPUTE_DKV
#define WRITE_MORE            \
  WRITE_TURNED_TILE(held_y, Y_TURNED_AT, DVP) \
  WRITE_SCALARS
#else
#define WRITE_MORE
#endif
#define WRITE_TILES                                                                                   \
  BARRIER();                                                                                          \
  WRITE_TILE(held_x, 1, X_AT, DP, D)                                                                  \
  WRITE_TILE(held_y, COMPUTE_DKV, Y_AT, DVP, DV)                                                      \
  WRITE_TURNED_TILE(held_x, X_TURNED_AT, DP)                                                          \
  WRITE_MORE                                                                                          \
  BARRIER();
// lse, in units of log2, and delta of a tile's queries, which begin at a multiple of four. All invocations load what the first ones write: a branch
// around the loads would wait for them.
#define WIDE_SCALARS (WIDE_ROWS && LANES_OF_SUBGROUP >= BC / 4)
#if WIDE_SCALARS
#if BIAS
#define LSE_WORDS(at) uvec4(LOAD4(extras, LSE_AT + (at)))
#else
#define LSE_WORDS(at) floatBitsToUint(LOAD4(lse, at))
#endif
#define HOLD_SCALARS(from)                                                                            \
  {                                                                                                   \
    int mesh_at = scalars + IMIN((from) + REST(lane, BC / 4) * 4, s_len - 4);                         \
    held_lse = LSE_WORDS(mesh_at);                                                                    \
    held_delta = uvec4(LOAD4(extras, mesh_at));                                                       \
  }
#define WRITE_SCALARS                                                                                 \
  if (own == 0 && lane < BC / 4) {                                                                    \
    memory[SCALARS_AT + lane] = floatBitsToUint(uintBitsToFloat(held_lse) * LOG2_E);                  \
    memory[SCALARS_AT + BC / 4 + lane] = held_delta;                                                  \
  }
#else
#define HOLD_SCALARS(from)
#define WRITE_SCALARS                                                                                 \
  for (int mesh_e = LOCAL_ID(0); mesh_e < 2 * BC; mesh_e += WG_X) {                                   \
    int mesh_at = scalars + IMIN(tile + mesh_e % BC, s_len - 1);                                      \
    memory[SCALARS_AT + QUOTIENT(mesh_e, 4)][REST(mesh_e, 4)] = BITS_OF(mesh_e < BC ? LSE(mesh_at) * LOG2_E : NUMBER_AT(mesh_at)); \
  }
#endif
#define SCALAR(at) FLOAT_OF_BITS(memory[SCALARS_AT + QUOTIENT(at, 4)][REST(at, 4)])

KERNEL_BEGIN
  int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    int own = int(gl_SubgroupID);
    int lane = int(gl_SubgroupInvocationID);
    int own_rows = own * MATRIX_M;
    int own_scores = SCORES_AT + own_rows * SCORE_STRIDE;
    int first = item % blocks * OWN_ROWS;
    float scale_log2 = scale * LOG2_E;
#if COMPUTE_DKV
    int count = IMIN(OWN_ROWS, t_len - first);
    int group = item / blocks % kv_heads;
    int batch = item / blocks / kv_heads;
    int head_begin = group * (heads / kv_heads);
    int head_end = head_begin + heads / kv_heads;
    DECODE_EXTRAS(items / blocks / kv_heads, batch)
    int begin = prefix > first ? 0 : IMAX(first - offset - right, 0);
    int last = prefix > first ? s_len : IMIN(first + count - offset + left, s_len);
    begin -= begin % 4;
#else
    int count = IMIN(OWN_ROWS, s_len - first);
    int head_begin = item / blocks % heads;
    int head_end = head_begin + 1;
    int batch = item / blocks / heads;
    int group = head_begin / (heads / kv_heads);
    DECODE_EXTRAS(items / blocks / heads, batch)
    DECLARE_SHOWN_KEYS
#endif
#if OWN_X_HELD
    LOAD_X(0)
    BARRIER();
    MatrixA own_x[DP / MATRIX_K];
    UNROLL for (int k = 0; k < DP / MATRIX_K; ++k) LOAD_OWN(own_x[k], 0, DP, k);
    BARRIER();
#endif
#if OWN_Y_HELD
    LOAD_Y(0)
    BARRIER();
    MatrixA own_y[DVP / MATRIX_K];
    UNROLL for (int k = 0; k < DVP / MATRIX_K; ++k) LOAD_OWN(own_y[k], 0, DVP, k);
    BARRIER();
#endif
#if !OWN_X_HELD
    LOAD_X(OWN_X_AT)
#endif
#if !OWN_Y_HELD
    LOAD_Y(OWN_Y_AT)
#endif
    MatrixSum sums_x[DP / MATRIX_N];
    UNROLL for (int n = 0; n < DP / MATRIX_N; ++n) sums_x[n] = FIRST_SUM;
#if COMPUTE_DKV
    MatrixSum sums_v[DVP / MATRIX_N];
    UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) sums_v[n] = FIRST_SUM;
#endif
#if defined(ROLLED) && !MATRIX_BF16
    uint sums_exponent = 10u;
#endif
    // Per item, of its row.
    int segment[ITEMS];
    UNROLL for (int e = 0; e < ITEMS; ++e) {
      int own_row = first + own_rows + ITEM_ROW(e);
      segment[e] = !HAS_SEGMENTS ? 0 : COMPUTE_DKV != 0 ? KEY_SEGMENT(own_row) : QUERY_SEGMENT(own_row);
    }
    DECLARE_PLACES(places_x, 1, DP, D, STREAMED_HEADS * D)
    DECLARE_PLACES(places_y, COMPUTE_DKV, DVP, DV, STREAMED_HEADS * DV)
    uvec4 held_x[HELD(1, DP)];
    uvec4 held_y[HELD(COMPUTE_DKV, DVP)];
#if defined(ROLLED) && !COMPUTE_DKV
    // No loop around that of the tiles, or sums are carried in pieces again.
    int head = head_begin;
    {
#else
    for (int head = head_begin; head < head_end; ++head) {
#endif
      int scalars = (batch * heads + head) * s_len;
      DECODE_HEAD
#if COMPUTE_DKV
      uvec4 held_lse;
      uvec4 held_delta;
      int base_x = (batch * s_len * heads + head) * D;
      int base_y = (batch * s_len * heads + head) * DV;
      int streamed_length = s_len;
#else
      float row_lse[ITEMS];
      float row_delta[ITEMS];
      UNROLL for (int e = 0; e < ITEMS; ++e) {
        int own_row = first + own_rows + ITEM_ROW(e);
        int at = scalars + IMIN(own_row, s_len - 1);
        row_lse[e] = own_row < s_len ? LSE(at) * LOG2_E : INFINITY_F;
        row_delta[e] = NUMBER_AT(at);
      }
      int base_x = (batch * t_len * kv_heads + group) * D;
      int base_y = (batch * t_len * kv_heads + group) * DV;
      int streamed_length = t_len;
#endif
      int tile = begin;
      SKIP_TILES(tile)
      int from = IMIN(tile, (streamed_length - 1) / 4 * 4);
      HOLD_TILES(from)
      WRITE_AHEAD
      while (tile < last) {
#ifdef ROLLED
        uvec4 held_x[HELD(1, DP)];
        uvec4 held_y[HELD(COMPUTE_DKV, DVP)];
#if COMPUTE_DKV
        uvec4 held_lse;
        uvec4 held_delta;
#endif
#else
        WRITE_TILES
#endif
        int next_tile = tile + BC;
        SKIP_TILES(next_tile)
#ifndef ROLLED
        // In a branch, out of which compilers do not move the loads to where they are waited for.
        if (next_tile < last) {
          HOLD_TILES(next_tile)
        }
#endif
        MatrixSum products[BC / MATRIX_N];
        MatrixSum dproducts[BC / MATRIX_N];
        UNROLL for (int n = 0; n < BC / MATRIX_N; ++n) {
          products[n] = MatrixSum(0.0f);
          dproducts[n] = MatrixSum(0.0f);
        }
        ADD_SCORES(products, OWN_X, X_AT, DP)
        ADD_SCORES(dproducts, OWN_Y, Y_AT, DVP)
        float p[ITEMS * 8];
        float ds[ITEMS * 8];
        STORE_SCORES(products)
        FENCE();
        READ_SCORES(p)
        FENCE();
        STORE_SCORES(dproducts)
        FENCE();
        READ_SCORES(ds)
        UNROLL for (int e = 0; e < ITEMS; ++e) {
          int own_row = first + own_rows + ITEM_ROW(e);
          int column = ITEM_GROUP(e) * 8;
          UNROLL for (int u = 0; u < 8; ++u) {
#if COMPUTE_DKV
            int i = tile + column + u;
            int j = own_row;
            float of_lse = SCALAR(column + u);
            float of_delta = SCALAR(BC + column + u);
#else
            int i = own_row;
            int j = tile + column + u;
            float of_lse = row_lse[e];
            float of_delta = row_delta[e];
#endif
            float softcap_grad;
            LOGIT(p[e * 8 + u], softcap_grad, i, j)
            p[e * 8 + u] = exp2(p[e * 8 + u] - of_lse);
            ds[e * 8 + u] = p[e * 8 + u] * (ds[e * 8 + u] - of_delta) * softcap_grad;
          }
        }
        if (!ALL_SHOWN(tile)) {
          UNROLL for (int e = 0; e < ITEMS; ++e) {
            int own_row = first + own_rows + ITEM_ROW(e);
            int streamed_row = tile + ITEM_GROUP(e) * 8;
#if COMPUTE_DKV
            DECODE_SHOWN_QUERIES(own_row, streamed_row)
#else
            DECODE_SHOWN_KEYS(own_row, streamed_row)
#endif
            UNROLL for (int u = 0; u < 8; ++u) {
#if COMPUTE_DKV
              bool shown = IS_SHOWN_QUERY(u) && SEES_BIT(streamed_row + u, own_row);
              if (HAS_SEGMENTS) shown = shown && segment[e] == QUERY_SEGMENT(streamed_row + u);
#else
              bool shown = IS_SHOWN_KEY(u) && SEES_BIT(own_row, streamed_row + u);
              if (HAS_SEGMENTS) shown = shown && segment[e] == KEY_SEGMENT(streamed_row + u);
#endif
              p[e * 8 + u] = shown ? p[e * 8 + u] : 0.0f;
              ds[e * 8 + u] = shown ? ds[e * 8 + u] : 0.0f;
            }
          }
        }
        MatrixA parts[BC / MATRIX_K * PARTS];
#if COMPUTE_DKV
        FENCE();
        UNROLL for (int e = 0; e < ITEMS; ++e) WRITE_PARTS(p, e, P_SCALE)
        FENCE();
        LOAD_PARTS(parts)
        UNROLL for (int n = 0; n < DVP / MATRIX_N; ++n) ADD_WEIGHTED(sums_v[n], parts, Y_TURNED_AT, n)
#endif
        float scale_up = 1.0f;
#if !MATRIX_BF16
        // Scales by a power of two into the range where f16 is normal, for the low parts too.
        float largest = 0.0f;
        UNROLL for (int e = 0; e < ITEMS * 8; ++e) largest = max(largest, abs(ds[e]));
        uint exponent = clamp((floatBitsToUint(subgroupMax(largest)) >> 23) & 255u, 10u, 253u);
#ifdef ROLLED
        // That of the largest number so far, to which the sums are scaled: what the loop carries must be the sum of a product (FIRST_SUM).
        exponent = max(exponent, sums_exponent);
        float rescale = uintBitsToFloat((127u - min(exponent - sums_exponent, 126u)) << 23);
        sums_exponent = exponent;
#endif
        scale_up = uintBitsToFloat((263u - exponent) << 23);
        float scale_down = uintBitsToFloat((exponent - 9u) << 23);
#endif
        FENCE();
        UNROLL for (int e = 0; e < ITEMS; ++e) WRITE_PARTS(ds, e, scale_up)
        FENCE();
        LOAD_PARTS(parts)
        UNROLL for (int n = 0; n < DP / MATRIX_N; ++n) {
#if MATRIX_BF16
          ADD_WEIGHTED(sums_x[n], parts, X_TURNED_AT, n)
#elif defined(ROLLED)
          sums_x[n] = sums_x[n] * rescale;
          ADD_WEIGHTED(sums_x[n], parts, X_TURNED_AT, n)
#else
          MatrixSum product = MatrixSum(0.0f);
          ADD_WEIGHTED(product, parts, X_TURNED_AT, n)
          sums_x[n] += product * scale_down;
#endif
#ifdef ROLLED
          // Behind the first of them, where registers are free again.
          if (n == 0) {
            int next_from = IMIN(next_tile, (streamed_length - 1) / 4 * 4);
            HOLD_TILES(next_from)
          }
#endif
        }
        tile = next_tile;
        WRITE_AHEAD
      }
    }
#if defined(ROLLED) && !MATRIX_BF16
#define SUMS_SCALE uintBitsToFloat((sums_exponent - 9u) << 23)
#else
#define SUMS_SCALE 1.0f
#endif
    float factor[ITEMS];
    UNROLL for (int e = 0; e < ITEMS; ++e) factor[e] = scale * SUMS_SCALE;
#if COMPUTE_DKV
    WRITE_SUMS(sums_x, dk, DP, D, t_len, kv_heads, group, factor)
    UNROLL for (int e = 0; e < ITEMS; ++e) factor[e] = 1.0f / P_SCALE;
    WRITE_SUMS(sums_v, dv, DVP, DV, t_len, kv_heads, group, factor)
#else
    WRITE_SUMS(sums_x, dq, DP, D, s_len, heads, head_begin, factor)
#endif
  }
KERNEL_END
