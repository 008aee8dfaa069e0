// Attention backward of 16-bit floats on the matrix units of Intel's GPUs. COMPUTE_DKV 0: dQ of query rows, past which keys and values
// are streamed. COMPUTE_DKV 1: dK and dV of keys, past which the queries of every head of their group are streamed. With X the own
// rows of Q or K, Y those of dO or V, and X', Y' the streamed ones:
//   P = exp(logit(scale X X'^T) - lse),  dS = P (Y Y'^T - delta) softcap_grad,  dX = scale dS X',  dV = P dO
// `extras` begins with delta. There is room for two tiles of streamed rows: while one is multiplied the next is on its way in
// registers. A tile has X' along its features and along its rows, and Y' too, where that is for dV.
// Source: Dao, FlashAttention-2 (2023), algorithm 2.
#include "attention_matrix_grad.inc"
#include "attention_dpas.inc"
// Where the sums of both dK and dV do not fit the registers, each has a kernel of its own (COMPUTE_DK, COMPUTE_DV).
#define COMPUTE_DX (1 - COMPUTE_DKV + COMPUTE_DK)
#define X_PAIRS_AT ROWS_WORDS(DP)
#define Y_AT (X_PAIRS_AT + COMPUTE_DX * PAIRS_WORDS(D))
#define Y_PAIRS_AT (Y_AT + COMPUTE_DX * ROWS_WORDS(DVP))
#define SCALARS_AT (Y_PAIRS_AT + COMPUTE_DV * PAIRS_WORDS(DV))  // lse and delta of streamed queries
#define TILE_WORDS (SCALARS_AT + COMPUTE_DKV * 2 * BC)
#define OWN_X_AT (2 * TILE_WORDS)
#define OWN_Y_AT (OWN_X_AT + OWN_WORDS(DP))
#define SHARED(X) X(uint4, memory, ((OWN_Y_AT + COMPUTE_DX * OWN_WORDS(DVP)) / 4)) DPAS_SHARED(X)
#if COMPUTE_DKV
#define OWN_X k
#define OWN_Y v
#define OWN_LENGTH t_len
#define OWN_HEADS kv_heads
#define OWN_HEAD group
#define STREAMED_X q
#define STREAMED_Y dout
#define STREAMED_LENGTH s_len
#define STREAMED_HEADS heads
#define STREAMED_HEAD head
#else
#define OWN_X q
#define OWN_Y dout
#define OWN_LENGTH s_len
#define OWN_HEADS heads
#define OWN_HEAD head_begin
#define STREAMED_X k
#define STREAMED_Y v
#define STREAMED_LENGTH t_len
#define STREAMED_HEADS kv_heads
#define STREAMED_HEAD group
#endif
// Rows that are A along their features alone are loaded as such, others by pairs.
#if COMPUTE_DX
#define FETCH_X(from) FETCH_PAIRS(next_x, STREAMED_X, base_x, from, STREAMED_LENGTH, D, STREAMED_HEADS * D)
#define PUT_X(at) PUT_BOTH(at, (at) + X_PAIRS_AT, next_x, DP, D)
#define X_ITEMS (2 * PAIR_ITEMS(D))
#else
#define FETCH_X(from) FETCH_ROWS(next_x, STREAMED_X, base_x, from, STREAMED_LENGTH, DP, D, STREAMED_HEADS * D)
#define PUT_X(at) PUT_ROWS(at, next_x, DP, D)
#define X_ITEMS ROW_ITEMS(DP)
#endif
#if COMPUTE_DV
#define FETCH_Y(from) FETCH_PAIRS(next_y, STREAMED_Y, base_y, from, STREAMED_LENGTH, DV, STREAMED_HEADS * DV)
#define Y_ITEMS (2 * PAIR_ITEMS(DV))
#else
#define FETCH_Y(from) FETCH_ROWS(next_y, STREAMED_Y, base_y, from, STREAMED_LENGTH, DVP, DV, STREAMED_HEADS * DV)
#define Y_ITEMS ROW_ITEMS(DVP)
#endif
#if COMPUTE_DX && COMPUTE_DV
#define PUT_Y(at) PUT_BOTH((at) + Y_AT, (at) + Y_PAIRS_AT, next_y, DVP, DV)
#elif COMPUTE_DX
#define PUT_Y(at) PUT_ROWS((at) + Y_AT, next_y, DVP, DV)
#else
#define PUT_Y(at) PUT_PAIRS((at) + Y_PAIRS_AT, next_y, DV)
#endif
// The tile's lse, in units of log2 and less the scale of probabilities, and delta. Where there are more invocations than numbers,
// several carry the same.
#if COMPUTE_DKV
#define SCALARS ((2 * BC + WG_X - 1) / WG_X)
#define SCALAR_OF(e) ((LOCAL_ID(0) + (e) * WG_X) % (2 * BC))
#define FETCH_SCALARS(from)                                                               \
  UNROLL for (int mesh_e = 0; mesh_e < SCALARS; ++mesh_e) {                               \
    const int mesh_at = scalars + IMIN((from) + SCALAR_OF(mesh_e) % BC, s_len - 1);       \
    next_scalars[mesh_e] = SCALAR_OF(mesh_e) < BC ? LSE(mesh_at) : NUMBER_AT(mesh_at);    \
  }
#define PUT_SCALARS(at)                                                                   \
  UNROLL for (int mesh_e = 0; mesh_e < SCALARS; ++mesh_e)                                 \
    ((__local float *)memory)[(at) + SCALARS_AT + SCALAR_OF(mesh_e)] =                    \
        SCALAR_OF(mesh_e) < BC ? next_scalars[mesh_e] * LOG2_E - LOG2_P_SCALE : next_scalars[mesh_e];
#else
#define SCALARS 1
#define FETCH_SCALARS(from)
#define PUT_SCALARS(at)
#endif
#define FETCH_TILE(from) FETCH_X(from) FETCH_Y(from) FETCH_SCALARS(from)
#define PUT_TILE(at) PUT_X(at) PUT_Y(at) PUT_SCALARS(at)
#if COMPUTE_DX
#define TIMES_GRAD(e) ds[m * BANDS + b].s##e *= softcap_grad;
#else
#define TIMES_GRAD(e)
#endif
#define LOGIT_OF(e)                                                                       \
  {                                                                                       \
    float softcap_grad, logit = p[m * BANDS + b].s##e;                                    \
    LOGIT(logit, softcap_grad, QUERY_OF(m, b, e), KEY_OF(m, b, e))                        \
    p[m * BANDS + b].s##e = logit;                                                        \
    TIMES_GRAD(e)                                                                         \
  }
// As attention_matrix_grad.inc says, for the largest dS of a lane.
#if AB_TYPE == 1
#define SCALE_SCORE_GRADIENTS
#else
#define SCALE_SCORE_GRADIENTS                                                             \
  {                                                                                       \
    float8 top = fabs(ds[0]);                                                             \
    UNROLL for (int e = 1; e < ROW_MATRICES * BANDS; ++e) top = fmax(top, fabs(ds[e]));   \
    const int next_exponent = IMIN((int)(BITS_OF(largest_of_8(top)) >> 23), 253);         \
    if (next_exponent > exponent) {                                                       \
      const float shrink = FLOAT_OF_BITS((uint)IMAX(127 + exponent - next_exponent, 0) << 23); \
      UNROLL for (int e = 0; e < ROW_MATRICES * D / 8; ++e) sums_x[e] *= shrink;          \
      exponent = next_exponent;                                                           \
    }                                                                                     \
    const float up = FLOAT_OF_BITS((uint)(263 - exponent) << 23);                         \
    UNROLL for (int e = 0; e < ROW_MATRICES * BANDS; ++e) ds[e] *= up;                    \
  }
#endif

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    DECLARE_LANE
    DECLARE_ITEM
    DECLARE_OWN_SEGMENTS(OWN_SEGMENT)
    const int base_own_x = (batch * OWN_LENGTH * OWN_HEADS + OWN_HEAD) * D;
    DECLARE_OWN(own_x, DP)
    LOAD_OWN(own_x, OWN_X_AT, OWN_X, base_own_x, OWN_LENGTH, DP, D, OWN_HEADS * D)
#if COMPUTE_DX
    const int base_own_y = (batch * OWN_LENGTH * OWN_HEADS + OWN_HEAD) * DV;
    DECLARE_OWN(own_y, DVP)
    LOAD_OWN(own_y, OWN_Y_AT, OWN_Y, base_own_y, OWN_LENGTH, DVP, DV, OWN_HEADS * DV)
    float8 sums_x[ROW_MATRICES * D / 8];
    UNROLL for (int e = 0; e < ROW_MATRICES * D / 8; ++e) sums_x[e] = (float8)(0.0f);
    UNROLL for (int stage = 0; stage < 2; ++stage) {
      CLEAR_PADDING(stage * TILE_WORDS, DP, D)
      if (COMPUTE_DV) { CLEAR_PADDING(stage * TILE_WORDS + Y_AT, DVP, DV) }
    }
#endif
#if COMPUTE_DV
    float8 sums_v[ROW_MATRICES * DV / 8];
    UNROLL for (int e = 0; e < ROW_MATRICES * DV / 8; ++e) sums_v[e] = (float8)(0.0f);
#endif
    int segment[ROW_MATRICES];
    UNROLL for (int m = 0; m < ROW_MATRICES; ++m)
      segment[m] = HAS_SEGMENTS ? OWN_SEGMENT(first + OWN_ROW(m, 0)) : 0;
    DECLARE_EXPONENT
    uint4 next_x[X_ITEMS], next_y[Y_ITEMS];
    float next_scalars[SCALARS];
    int at = 0;
    for (int head = head_begin; head < head_end; ++head) {
      const int scalars = (batch * heads + head) * s_len;
      DECODE_HEAD
      const int base_x = (batch * STREAMED_LENGTH * STREAMED_HEADS + STREAMED_HEAD) * D;
      const int base_y = (batch * STREAMED_LENGTH * STREAMED_HEADS + STREAMED_HEAD) * DV;
#if !COMPUTE_DKV
      float row_lse[ROW_MATRICES], row_delta[ROW_MATRICES];
      UNROLL for (int m = 0; m < ROW_MATRICES; ++m) {
        const int i = first + OWN_ROW(m, 0);
        row_lse[m] = i < s_len ? LSE(scalars + i) * LOG2_E - LOG2_P_SCALE : INFINITY_F;
        row_delta[m] = NUMBER_AT(scalars + IMIN(i, s_len - 1));
      }
#endif
      bool same_segment = false;
      int tile = begin;
      FIND_TILE(tile, same_segment)
      if (tile < last) {
        FETCH_TILE(tile)
        PUT_TILE(at)
      }
      BARRIER();
      while (tile < last) {
        bool next_same_segment = false;
        int next_tile = tile + BC;
        FIND_TILE(next_tile, next_same_segment)
        float8 p[ROW_MATRICES * BANDS];
        UNROLL for (int e = 0; e < ROW_MATRICES * BANDS; ++e) p[e] = (float8)(0.0f);
        ADD_SCORES(p, own_x, OWN_X_AT, at, DP)
#if COMPUTE_DX
        float8 ds[ROW_MATRICES * BANDS];
        UNROLL for (int e = 0; e < ROW_MATRICES * BANDS; ++e) ds[e] = (float8)(0.0f);
        ADD_SCORES(ds, own_y, OWN_Y_AT, at + Y_AT, DVP)
#endif
        FOR_EACH_BAND(m, b) {
#if COMPUTE_DKV
          __local const float *of_tile = (__local const float *)memory + at + SCALARS_AT + 8 * b;
          const float8 of_lse = vload8(0, of_tile), of_delta = vload8(0, of_tile + BC);
#else
          const float8 of_lse = (float8)(row_lse[m]), of_delta = (float8)(row_delta[m]);
#endif
#if COMPUTE_DX
          ds[m * BANDS + b] -= of_delta;
#endif
          if (LOGITS) { EACH_OF_8(LOGIT_OF) }
          EXP2(p[m * BANDS + b], MAD(p[m * BANDS + b], (float8)(factor), -of_lse))
        }
#if COMPUTE_DKV
        if (!ALL_QUERIES_SHOWN(tile)) { MASK_QUERIES(p, tile, 0.0f) }
#else
        if (!ALL_KEYS_SHOWN(tile)) { MASK_KEYS(p, tile, 0.0f) }
#endif
        // Behind the last tile what nobody reads is fetched, which costs less than a branch at every tile.
#if COMPUTE_DX
        UNROLL for (int e = 0; e < ROW_MATRICES * BANDS; ++e) ds[e] *= p[e];
#if COMPUTE_DV
        ADD_WEIGHTED(sums_v, p, at + Y_PAIRS_AT, DV, )
#endif
        SCALE_SCORE_GRADIENTS
        ADD_WEIGHTED(sums_x, ds, at + X_PAIRS_AT, D, FETCH_TILE(next_tile))
#else
        ADD_WEIGHTED(sums_v, p, at + Y_PAIRS_AT, DV, FETCH_TILE(next_tile))
#endif
        tile = next_tile;
        same_segment = next_same_segment;
        at = TILE_WORDS - at;
        // Who still reads the other tile has not passed the last barrier.
        PUT_TILE(at)
        BARRIER();
      }
    }
    float finish[ROW_MATRICES];
#if COMPUTE_DX
    UNROLL for (int m = 0; m < ROW_MATRICES; ++m) finish[m] = FACTOR_OF_SUMS;
#if COMPUTE_DKV
    WRITE_SUMS(sums_x, dk, D, t_len, kv_heads, group, finish)
#else
    WRITE_SUMS(sums_x, dq, D, s_len, heads, head_begin, finish)
#endif
#endif
#if COMPUTE_DV
    UNROLL for (int m = 0; m < ROW_MATRICES; ++m) finish[m] = 1.0f / P_SCALE;
    WRITE_SUMS(sums_v, dv, DV, t_len, kv_heads, group, finish)
#endif
  }
KERNEL_END
