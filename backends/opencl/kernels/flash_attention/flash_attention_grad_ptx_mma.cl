// Attention backward of 16-bit floats on NVIDIA's tensor cores. COMPUTE_DKV 0: dQ of query rows, past which keys and values are
// streamed. COMPUTE_DKV 1: dK and dV of keys, past which the queries of every head of their group are streamed. With X the own
// rows of Q or K, Y those of dO or V, and X', Y' the streamed ones:
//   P = exp(logit(scale X X'^T) - lse),  dS = P (Y Y'^T - delta) softcap_grad,  dX = scale dS X',  dV = P dO
// `extras` begins with delta. There is room for two tiles of streamed rows: while one is multiplied the next is on its way.
// Source: Dao, FlashAttention-2 (2023), algorithm 2.
#include "attention_matrix_grad.inc"
#include "attention_mma.inc"
#define Y_AT (BC * STRIDE(DP))  // of a tile, behind its rows of X'
#define SCALARS_AT (Y_AT + BC * STRIDE(DVP))  // lse and delta of streamed queries
#define TILE_WORDS (SCALARS_AT + COMPUTE_DKV * BC / 2)
// Own rows go through the tiles' place on their way to registers, both together where they fit.
#define OWN_Y_AT (OWN_ROWS * (STRIDE(DP) + STRIDE(DVP)) <= 2 * TILE_WORDS ? OWN_ROWS * STRIDE(DP) : 0)
#define SHARED(X) X(uint4, memory, (LARGER(2 * TILE_WORDS, OWN_ROWS * LARGER(STRIDE(DP), STRIDE(DVP))))) MMA_SHARED(X)
#if COMPUTE_DKV
#define COPY_OWN_X(at) COPY_ROWS(at, OWN_ROWS, k, base_own_x, first, t_len, DP, D, kv_heads * D)
#define COPY_OWN_Y(at) COPY_ROWS(at, OWN_ROWS, v, base_own_y, first, t_len, DVP, DV, kv_heads * DV)
#define COPY_TILE(at, from)                                                               \
  COPY_ROWS(at, BC, q, base_x, from, s_len, DP, D, heads * D)                             \
  COPY_ROWS((at) + Y_AT, BC, dout, base_y, from, s_len, DVP, DV, heads * DV)
#else
#define COPY_OWN_X(at) COPY_ROWS(at, OWN_ROWS, q, base_own_x, first, s_len, DP, D, heads * D)
#define COPY_OWN_Y(at) COPY_ROWS(at, OWN_ROWS, dout, base_own_y, first, s_len, DVP, DV, heads * DV)
#define COPY_TILE(at, from)                                                               \
  COPY_ROWS(at, BC, k, base_x, from, t_len, DP, D, kv_heads * D)                          \
  COPY_ROWS((at) + Y_AT, BC, v, base_y, from, t_len, DVP, DV, kv_heads * DV)
#endif
// The tile's lse, in units of log2 and less the scale of probabilities, and delta come through registers. Where there are more
// invocations than numbers, several carry the same.
#define SCALARS ((2 * BC + WG_X - 1) / WG_X)
#define SCALAR_OF(e) ((LOCAL_ID(0) + (e) * WG_X) % (2 * BC))
#define LOAD_SCALARS(from)                                                                \
  UNROLL for (int mesh_e = 0; mesh_e < SCALARS; ++mesh_e) {                               \
    const int mesh_at = scalars + IMIN((from) + SCALAR_OF(mesh_e) % BC, s_len - 1);       \
    next_scalars[mesh_e] = SCALAR_OF(mesh_e) < BC ? LSE(mesh_at) : NUMBER_AT(mesh_at);    \
  }
#define STORE_SCALARS(at)                                                                 \
  UNROLL for (int mesh_e = 0; mesh_e < SCALARS; ++mesh_e)                                 \
    ((__local float *)(memory + (at) + SCALARS_AT))[SCALAR_OF(mesh_e)] =                  \
        SCALAR_OF(mesh_e) < BC ? next_scalars[mesh_e] * LOG2_E - LOG2_P_SCALE : next_scalars[mesh_e];

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    DECLARE_LANE
    DECLARE_ITEM
#if COMPUTE_DKV
    const int base_own_x = (batch * t_len * kv_heads + group) * D;
    const int base_own_y = (batch * t_len * kv_heads + group) * DV;
#else
    const int base_own_x = (batch * s_len * heads + head_begin) * D;
    const int base_own_y = (batch * s_len * heads + head_begin) * DV;
#endif
    DECLARE_OWN_SEGMENTS(OWN_SEGMENT)
    uint own_x[OWN_WORDS(DP)], own_y[OWN_WORDS(DVP)];
    COPY_OWN_X(0)
    CLEAR_ROWS(0, OWN_ROWS, DP, D)
    if (OWN_Y_AT == 0) {
      WAIT_FOR_COPIES()
      BARRIER();
      LOAD_OWN(own_x, 0, DP)
      BARRIER();
    }
    COPY_OWN_Y(OWN_Y_AT)
    CLEAR_ROWS(OWN_Y_AT, OWN_ROWS, DVP, DV)
    WAIT_FOR_COPIES()
    BARRIER();
    if (OWN_Y_AT != 0) { LOAD_OWN(own_x, 0, DP) }
    LOAD_OWN(own_y, OWN_Y_AT, DVP)
    BARRIER();
    UNROLL for (int stage = 0; stage < 2; ++stage) {
      CLEAR_ROWS(stage * TILE_WORDS, BC, DP, D)
      CLEAR_ROWS(stage * TILE_WORDS + Y_AT, BC, DVP, DV)
    }

    float sums_x[SUMS(DP)];
    UNROLL for (int e = 0; e < SUMS(DP); ++e) sums_x[e] = 0.0f;
#if COMPUTE_DKV
    float sums_v[SUMS(DVP)];
    UNROLL for (int e = 0; e < SUMS(DVP); ++e) sums_v[e] = 0.0f;
    float next_scalars[SCALARS];
#endif
    int segment[2 * ROW_MATRICES];
    UNROLL for (int r = 0; r < 2 * ROW_MATRICES; ++r)
      segment[r] = HAS_SEGMENTS ? OWN_SEGMENT(first + OWN_ROW(r / 2, r % 2 * 2)) : 0;
    DECLARE_EXPONENT
    int at = 0;
    for (int head = head_begin; head < head_end; ++head) {
      const int scalars = (batch * heads + head) * s_len;
      DECODE_HEAD
#if COMPUTE_DKV
      const int base_x = (batch * s_len * heads + head) * D;
      const int base_y = (batch * s_len * heads + head) * DV;
#else
      const int base_x = (batch * t_len * kv_heads + group) * D;
      const int base_y = (batch * t_len * kv_heads + group) * DV;
      float row_lse[2 * ROW_MATRICES], row_delta[2 * ROW_MATRICES];
      UNROLL for (int r = 0; r < 2 * ROW_MATRICES; ++r) {
        const int i = first + OWN_ROW(r / 2, r % 2 * 2);
        row_lse[r] = i < s_len ? LSE(scalars + i) * LOG2_E - LOG2_P_SCALE : INFINITY_F;
        row_delta[r] = NUMBER_AT(scalars + IMIN(i, s_len - 1));
      }
#endif
      bool same_segment = false;
      int tile = begin;
      FIND_TILE(tile, same_segment)
      if (tile < last) {
        COPY_TILE(at, tile)
#if COMPUTE_DKV
        LOAD_SCALARS(tile)
        STORE_SCALARS(at)
#endif
      }
      while (tile < last) {
        WAIT_FOR_COPIES()
        // Behind it the tile is whole, and nobody reads the other one any more.
        BARRIER();
        bool next_same_segment = false;
        int next_tile = tile + BC;
        FIND_TILE(next_tile, next_same_segment)
        if (next_tile < last) {
          COPY_TILE(TILE_WORDS - at, next_tile)
#if COMPUTE_DKV
          LOAD_SCALARS(next_tile)
#endif
        }
        float p[SCORES], ds[SCORES];
        UNROLL for (int e = 0; e < SCORES; ++e) {
          p[e] = 0.0f;
          ds[e] = 0.0f;
        }
        ADD_SCORES(p, own_x, at, DP)
        ADD_SCORES(ds, own_y, at + Y_AT, DVP)
#if COMPUTE_DKV
        __local const float *of_tile = (__local const float *)(memory + at + SCALARS_AT);
#endif
        FOR_EACH_SCORE(m, n, e) {
          const int s = SCORE(m, n, e);
#if COMPUTE_DKV
          const float of_lse = of_tile[COLUMN(n, e)];
          const float of_delta = of_tile[BC + COLUMN(n, e)];
#else
          const float of_lse = row_lse[m * 2 + e / 2];
          const float of_delta = row_delta[m * 2 + e / 2];
#endif
          ds[s] -= of_delta;
          if (LOGITS) {
            float softcap_grad;
            LOGIT(p[s], softcap_grad, QUERY_OF(m, n, e), KEY_OF(m, n, e))
            ds[s] *= softcap_grad;
          }
          EXP2(p[s], MAD(p[s], factor, -of_lse))
        }
#if COMPUTE_DKV
        if (!ALL_QUERIES_SHOWN(tile)) { MASK_QUERIES(p, tile, 0.0f) }
        // On either side of the products, by where the assembler spills nothing.
#if AB_TYPE == 1
        UNROLL for (int e = 0; e < SCORES; ++e) ds[e] *= p[e];
        ADD_WEIGHTED(sums_v, p, at + Y_AT, DVP)
#else
        ADD_WEIGHTED(sums_v, p, at + Y_AT, DVP)
        UNROLL for (int e = 0; e < SCORES; ++e) ds[e] *= p[e];
#endif
#else
        if (!ALL_KEYS_SHOWN(tile)) { MASK_KEYS(p, tile, 0.0f) }
        UNROLL for (int e = 0; e < SCORES; ++e) ds[e] *= p[e];
#endif
        SCALE_SCORE_GRADIENTS(ds, sums_x)
        ADD_WEIGHTED(sums_x, ds, at, DP)
        tile = next_tile;
        same_segment = next_same_segment;
        at = TILE_WORDS - at;
#if COMPUTE_DKV
        if (tile < last) { STORE_SCALARS(at) }
#endif
      }
    }
    float finish[2 * ROW_MATRICES];
    UNROLL for (int r = 0; r < 2 * ROW_MATRICES; ++r) finish[r] = FACTOR_OF_SUMS;
#if COMPUTE_DKV
    WRITE_SUMS(sums_x, dk, DP, D, t_len, kv_heads, group, finish)
    UNROLL for (int r = 0; r < 2 * ROW_MATRICES; ++r) finish[r] = 1.0f / P_SCALE;
    WRITE_SUMS(sums_v, dv, DVP, DV, t_len, kv_heads, group, finish)
#else
    WRITE_SUMS(sums_x, dq, DP, D, s_len, heads, head_begin, finish)
#endif
  }
KERNEL_END
