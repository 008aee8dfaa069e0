// Attention backward of 16-bit floats on the tensor cores of NVIDIA's compute capability 9.0 (wgmma.inc), by the formulas of
// flash_attention_grad_ptx_mma.cl: COMPUTE_DKV 0: dQ of query rows, past which keys and values are streamed; COMPUTE_DKV 1: dK and dV
// of keys, past which the queries of every head of their group are streamed. With X the own rows of Q or K, Y those of dO or V, and
// X', Y' the streamed ones:
//   P = exp(logit(scale X X'^T) - lse),  dS = P (Y Y'^T - delta) softcap_grad,  dX = scale dS X',  dV = P dO
// A warpgroup has 64 own rows, as operands in registers, as P and dS are. A tile stands in workgroup memory once, for products along
// its features and along its rows. What a tile adds to dQ is multiplied behind the scores of the next one, and beside its exponentials;
// for that dK and dV leave no registers.
// `extras` begins with delta.
// Source: Dao, FlashAttention-2 (2023), algorithm 2.
#include "attention_matrix_grad.inc"
#include "attention_mma.inc"
#include "wgmma.inc"
#include "attention_wgmma.inc"
// Own rows stand in front of the tiles, in blocks as theirs, and sums at the end.
#define OWN_X_BYTES (OWN_ROWS * D * 2)
#define OWN_BYTES (OWN_ROWS * (D + DV) * 2)
#define X_BYTES (BC * D * 2)
#define TILE_BYTES (BC * (D + DV) * 2)
#define NUMBERS (COMPUTE_DKV * 2 * BC)  // lse and delta of a tile's queries
#define SHARED(X)                                                        \
  X(EightRows, eight_rows, ((OWN_BYTES + STAGES * TILE_BYTES) / 1024)) \
  X(float, numbers, (STAGES * NUMBERS + 1)) X(ulong, barriers, 2 * STAGES) MMA_SHARED(X)
#define STAGE_AT(stage) (tiles + (uint)(stage) * TILE_BYTES)
#define COPY_QUERIES(at, rows, from, of_head) \
  COPY_SWIZZLED(at, BLOCK_PLACE, rows, q, (batch * s_len * heads + (of_head)) * D, from, s_len, D, heads * D)
#define COPY_OUTPUTS(at, rows, from, of_head) \
  COPY_SWIZZLED(at, BLOCK_PLACE, rows, dout, (batch * s_len * heads + (of_head)) * DV, from, s_len, DV, heads * DV)
#define COPY_KEYS(at, rows, from) \
  COPY_SWIZZLED(at, BLOCK_PLACE, rows, k, (batch * t_len * kv_heads + group) * D, from, t_len, D, kv_heads * D)
#define COPY_VALUES(at, rows, from) \
  COPY_SWIZZLED(at, BLOCK_PLACE, rows, v, (batch * t_len * kv_heads + group) * DV, from, t_len, DV, kv_heads * DV)
#if BIAS
#define LSE_FROM (extras + LSE_AT)
#else
#define LSE_FROM lse
#endif
#if COMPUTE_DKV
#define COPY_OWN(at)                   \
  COPY_KEYS(at, OWN_ROWS, first)       \
  COPY_VALUES((at) + OWN_X_BYTES, OWN_ROWS, first)
#define COPY_TILE(stage, from, of_head)                                                                     \
  COPY_QUERIES(STAGE_AT(stage), BC, from, of_head)                                                          \
  COPY_OUTPUTS(STAGE_AT(stage) + X_BYTES, BC, from, of_head)                                                \
  for (int mesh_i = LOCAL_ID(0); mesh_i < 2 * BC; mesh_i += WG_X) {                                         \
    const int mesh_from = (batch * heads + (of_head)) * s_len + IMIN((from) + mesh_i % BC, s_len - 1);      \
    if (mesh_i < BC) { COPY_NUMBER_ASYNC(numbers, numbers_at + 4u * (uint)((stage) * NUMBERS + mesh_i), LSE_FROM + mesh_from) } \
    else { COPY_NUMBER_ASYNC(numbers, numbers_at + 4u * (uint)((stage) * NUMBERS + mesh_i), extras + mesh_from) } \
  }
#else
#define COPY_OWN(at)                                  \
  COPY_QUERIES(at, OWN_ROWS, first, head_begin)       \
  COPY_OUTPUTS((at) + OWN_X_BYTES, OWN_ROWS, first, head_begin)
#define COPY_TILE(stage, from, of_head)          \
  COPY_KEYS(STAGE_AT(stage), BC, from)           \
  COPY_VALUES(STAGE_AT(stage) + X_BYTES, BC, from)
#endif
// Brings `copied`, a tile of head `copied_head`, to the first one at or behind it that is shown, of that head or of a later one.
#define FIND_COPIED_TILE()                                           \
  for (bool mesh_searches = true; mesh_searches;) {                  \
    bool mesh_same = false;                                          \
    const int head = copied_head;                                    \
    DECODE_HEAD                                                      \
    FIND_TILE(copied, mesh_same)                                     \
    mesh_searches = copied >= last && copied_head + 1 < head_end;    \
    if (mesh_searches) {                                             \
      copied = begin;                                                \
      ++copied_head;                                                 \
    }                                                                \
  }
// Begins the copies of the next tile, if there is one, into the stage that is next.
#define COPY_NEXT_TILE()                         \
  if (copied < last) {                           \
    WAIT_UNTIL_EMPTY(into, into_phase)           \
    COPY_TILE(into, copied, copied_head)         \
    COPIES_ARRIVE(into)                          \
    NEXT_STAGE(into, into_phase)                 \
    ++copies;                                    \
    copied += BC;                                \
    FIND_COPIED_TILE()                           \
  }
// The words of own rows from byte `at` on, where they are operands in registers.
#define LOAD_OWN_WORDS(own, at, width)                                                                    \
  UNROLL for (int mesh_k = 0; mesh_k < (width) / 16; ++mesh_k)                                            \
    LOAD_MATRICES(own + mesh_k * 4, memory,                                                               \
                  (at) + SWIZZLE((uint)BLOCK_PLACE(own_rows + lane % 16, 2 * mesh_k + lane / 16, width)))
// Products of own rows and of the tile's.
#define MULTIPLY_ROWS(x, own, at, width)                                                                  \
  WGMMA_OWN_FIRST(BC, x, own, at, 1)                                                                      \
  UNROLL for (int mesh_k = 1; mesh_k < (width) / 16; ++mesh_k)                                            \
    WGMMA_OWN(BC, x, own + 4 * mesh_k, (at) + (uint)(mesh_k / 4 * 8192 + mesh_k % 4 * 32), 1)              \
  WGMMA_END()
#if COMPUTE_DKV
#define LSE_OF(m, n, e) (of_tile[COLUMN(n, e)] * LOG2_E - LOG2_P_SCALE)
#define DELTA_OF(m, n, e) of_tile[BC + COLUMN(n, e)]
#else
#define LSE_OF(m, n, e) row_lse[(e) / 2]
#define DELTA_OF(m, n, e) row_delta[(e) / 2]
#endif

KERNEL_BEGIN
  __local uint4 *memory = (__local uint4 *)eight_rows;
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    DECLARE_LANE
    DECLARE_ITEM
    const uint own_at = MMA_ADDRESS(memory);
    const uint tiles = own_at + OWN_BYTES;
    const uint numbers_at = MMA_ADDRESS(numbers);
    uint lost = 0u;
    BEGIN_BARRIERS()
    DECLARE_OWN_SEGMENTS(OWN_SEGMENT)
    COPY_OWN(own_at)
    COPIES_END()
    int copied = begin, copied_head = head_begin, into = 0, into_phase = 0, copies = 0;
    FIND_COPIED_TILE()
    UNROLL for (int a = 0; a < AHEAD; ++a) { COPY_NEXT_TILE() }
    COPIES_END()
    WAIT_FOR_COPIES_BUT(1)
    BARRIER();
    uint own_x[OWN_WORDS(DP)], own_y[OWN_WORDS(DVP)];
    LOAD_OWN_WORDS(own_x, own_at, D)
    LOAD_OWN_WORDS(own_y, own_at + OWN_X_BYTES, DV)

    float sums_x[SUMS(DP)];
    UNROLL for (int e = 0; e < SUMS(DP); ++e) sums_x[e] = 0.0f;
#if COMPUTE_DKV
    float sums_v[SUMS(DVP)];
    UNROLL for (int e = 0; e < SUMS(DVP); ++e) sums_v[e] = 0.0f;
#endif
    int segment[2];
    UNROLL for (int r = 0; r < 2; ++r) segment[r] = HAS_SEGMENTS ? OWN_SEGMENT(first + OWN_ROW(0, r * 2)) : 0;
    DECLARE_EXPONENT
    // dS of the tile before, which stands at stage `before`. In front of the first tile it is 0, and that stage the tile's own.
    uint words[BC / 2];
    UNROLL for (int e = 0; e < BC / 2; ++e) words[e] = 0u;
    int stage = STAGES - 1, phase = 1, before = 0;
    int taken = 0;
    WAIT_FOR_NEXT_STAGE(copies > 0)
    for (int head = head_begin; head < head_end; ++head) {
      DECODE_HEAD
#if !COMPUTE_DKV
      float row_lse[2], row_delta[2];
      UNROLL for (int r = 0; r < 2; ++r) {
        const int i = first + OWN_ROW(0, r * 2);
        const int scalar = (batch * heads + head) * s_len + IMIN(i, s_len - 1);
        row_lse[r] = i < s_len ? LSE(scalar) * LOG2_E - LOG2_P_SCALE : INFINITY_F;
        row_delta[r] = NUMBER_AT(scalar);
      }
#endif
      bool same_segment = false;
      int tile = begin;
      FIND_TILE(tile, same_segment)
      while (tile < last) {
        NEXT_STAGE(stage, phase)
        ++taken;
        float p[SCORES], ds[SCORES];
        WGMMA_BEGIN()
        MULTIPLY_ROWS(p, own_x, STAGE_AT(stage), D)
#if !COMPUTE_DKV
        MULTIPLY_WEIGHTED(sums_x, words, STAGE_AT(before), D)
#endif
        MULTIPLY_ROWS(ds, own_y, STAGE_AT(stage) + X_BYTES, DV)
        COPY_NEXT_TILE()
        if (LOGITS) {
          WGMMA_WAIT_BUT(0)
          WGMMA_ARRIVED(BC, ds)
        } else {
          WGMMA_WAIT_BUT(2 - COMPUTE_DKV)
        }
        WGMMA_ARRIVED(BC, p)
#if COMPUTE_DKV
        __local const float *of_tile = numbers + stage * NUMBERS;
#endif
        FOR_EACH_SCORE(m, n, e) {
          const int s = SCORE(m, n, e);
          if (LOGITS) {
            float softcap_grad;
            LOGIT(p[s], softcap_grad, QUERY_OF(m, n, e), KEY_OF(m, n, e))
            ds[s] = (ds[s] - DELTA_OF(m, n, e)) * softcap_grad;
          }
          EXP2(p[s], MAD(p[s], factor, -(LSE_OF(m, n, e))))
        }
        // The assembler moves nothing past a branch: the exponentials stand in front of the wait.
#if COMPUTE_DKV
        if (!ALL_QUERIES_SHOWN(tile)) { MASK_QUERIES(p, tile, 0.0f) }
#else
        if (!ALL_KEYS_SHOWN(tile)) { MASK_KEYS(p, tile, 0.0f) }
#endif
        WGMMA_ARRIVED(BC, p)
        WGMMA_WAIT_BUT(0)
        WGMMA_ARRIVED(D, sums_x)
        WGMMA_ARRIVED(BC, ds)
#if !COMPUTE_DKV
        if (taken > 1) { RELEASE(before) }
#endif
        if (!LOGITS) {
          FOR_EACH_SCORE(m, n, e) ds[SCORE(m, n, e)] -= DELTA_OF(m, n, e);
        }
        UNROLL for (int e = 0; e < SCORES; ++e) ds[e] *= p[e];
#if COMPUTE_DKV
        uint p_words[BC / 2];
        SPLIT_WEIGHTS(p_words, p)
        WGMMA_BEGIN()
        MULTIPLY_WEIGHTED(sums_v, p_words, STAGE_AT(stage) + X_BYTES, DV)
#endif
        // Nor these products, past this one; and the fence in it stands far behind the copies.
        WAIT_FOR_NEXT_STAGE(copies > taken)
        SCALE_SCORE_GRADIENTS(ds, sums_x)
        SPLIT_WEIGHTS(words, ds)
#if COMPUTE_DKV
        WGMMA_BEGIN()
        MULTIPLY_WEIGHTED(sums_x, words, STAGE_AT(stage), D)
        WGMMA_WAIT_BUT(0)
        WGMMA_ARRIVED(DV, sums_v)
        WGMMA_ARRIVED(D, sums_x)
        RELEASE(stage)
#endif
        before = stage;
        tile += BC;
        FIND_TILE(tile, same_segment)
      }
    }
    if (!COMPUTE_DKV && taken > 0) {
      WGMMA_BEGIN()
      MULTIPLY_WEIGHTED(sums_x, words, STAGE_AT(before), D)
      WGMMA_WAIT_BUT(0)
      WGMMA_ARRIVED(D, sums_x)
    }
    float finish[2];
    UNROLL for (int r = 0; r < 2; ++r) {
      finish[r] = FACTOR_OF_SUMS;
      // Sums of tiles that never arrived are no numbers.
      if (lost != 0u) finish[r] = NAN;
    }
#if COMPUTE_DKV
    WRITE_SUMS(sums_x, dk, DP, D, t_len, kv_heads, group, finish)
    UNROLL for (int r = 0; r < 2; ++r) finish[r] = lost != 0u ? NAN : 1.0f / P_SCALE;
    WRITE_SUMS(sums_v, dv, DVP, DV, t_len, kv_heads, group, finish)
#else
    WRITE_SUMS(sums_x, dq, DP, D, s_len, heads, head_begin, finish)
#endif
  }
KERNEL_END
