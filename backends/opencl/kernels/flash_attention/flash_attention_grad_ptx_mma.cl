// Attention backward of 16-bit floats on NVIDIA's tensor cores (mma.inc). COMPUTE_DKV 0: dQ of query rows, past which keys and
// values are streamed. COMPUTE_DKV 1: dK and dV of keys, past which the queries of every head of their group are streamed. With X
// the own rows of Q or K, Y those of dO or V, and X', Y' the streamed ones:
//   P = exp(logit(scale X X'^T) - lse),  dS = P (Y Y'^T - delta) softcap_grad,  dX = scale dS X',  dV = P dO
// `extras` begins with delta. A warp owns MATRICES x 16 rows and keeps their scores and sums in registers: the sums of one
// product lie as the first operand of the next does. Tiles of BC streamed rows go through workgroup memory, which has room for
// two of each: while one is multiplied the next is on its way, first into registers. The same rows are read for scores as they
// lie and for sums transposed.
// D and DV are the features of a key and of a value, DP and DVP those of the tiles, multiples of 16. PRESENT, SOFT_CAP: see
// attention_extras.inc. PARTS: an operand made of probabilities is the sum of so many 16-bit numbers, 2 or 1.
// Source: Dao, FlashAttention-2 (2023), algorithm 2.
#include "halves.inc"
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
#define LIMIT_LEFT 1024
#define LIMIT_RIGHT 2048
#define KEYS 16  // with a bitmask, streamed tiles begin at multiples of it
#define MATRIX_M (MATRICES * 16)
#define LOG2_E 1.44269504f
#include "attention_lanes.inc"
#include "attention_matrix_mask.inc"
#include "low_precision.inc"
#if AB_TYPE == 1
#define FACTOR_OF(h) value_of_bf16(h)
#define HALF_OF(x) bf16_of(x)
#define P_SCALE 1.0f
#else
#define FACTOR_OF(h) value_of_f16(h)
#define HALF_OF(x) f16_of(x)
// Probabilities are scaled up, so that their low parts stay above the smallest f16 numbers.
#define P_SCALE 1024.0f
#endif
#include "mma.inc"
// word = x and, in its upper half, y, rounded; EXP2: as the unit for it says.
#ifndef MMA_BY_HAND
#define PACK_HALVES(word, x, y) asm("cvt.rn." MMA_TYPE "x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y), "f"(x));
FN float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#define EXP2(x) exp2_of(x)
#else
#define PACK_HALVES(word, x, y) word = HALF_OF(x) | HALF_OF(y) << 16;
#define EXP2(x) exp2(x)
#endif

// --- Workgroup memory, in chunks of eight features; rows of an odd number of them use every bank once ---
#define CHUNKS_D (DP / 8)
#define CHUNKS_DV (DVP / 8)
#define STRIDE_D (CHUNKS_D | 1)
#define STRIDE_DV (CHUNKS_DV | 1)
#define OWN_ROWS (WG_X / 32 * MATRIX_M)
#define Y_AT (BC * STRIDE_D)
#define SCALARS_AT (Y_AT + BC * STRIDE_DV)  // lse and delta of streamed queries
#define STAGE_CHUNKS (SCALARS_AT + COMPUTE_DKV * BC / 2)
#define OWN_X_AT (2 * STAGE_CHUNKS)
#define OWN_Y_AT (OWN_X_AT + (1 - OWN_X_HELD) * OWN_ROWS * STRIDE_D)
#define END_AT (OWN_Y_AT + (1 - OWN_Y_HELD) * OWN_ROWS * STRIDE_DV)
#define SHARED(X) X(uint4, memory, (END_AT)) MMA_SHARED(X)

#define EACH_OF(size) (((size) + WG_X - 1) / WG_X)
#define EACH(e, size) UNROLL for (int e = 0; e < EACH_OF(size); ++e) if ((size) % WG_X == 0 || LOCAL_ID(0) + e * WG_X < (size))
// Eight features of a row from `column` on, zeros from `width` on.
FN uint4 eight(__global const uint16_t *row, int column, int width) {
  uint4 chunk = (uint4)(0u);
  if (width % 8 == 0) {
    if (column < width) chunk = *(__global const uint4 *)(row + column);
  } else {
    uint x[8];
    UNROLL for (int i = 0; i < 8; ++i) x[i] = column + i < width ? row[column + i] : 0u;
    chunk = (uint4)(x[0] | x[1] << 16, x[2] | x[3] << 16, x[4] | x[5] << 16, x[6] | x[7] << 16);
  }
  return chunk;
}
// What this invocation carries of the `rows` rows from row `from` on: from device memory, where row 0 begins at `row_0` and
// rows are `step` elements apart, and into workgroup memory. Rows beyond `length` are the last, whose weights are 0.
#define FETCH_ROWS(next, row_0, rows, chunks, from, length, width, step)                                       \
  EACH(mesh_e, (rows) * (chunks)) {                                                                            \
    const int mesh_i = LOCAL_ID(0) + mesh_e * WG_X;                                                            \
    next[mesh_e] = eight((row_0) + IMIN((from) + mesh_i / (chunks), (length) - 1) * (step), mesh_i % (chunks) * 8, width); \
  }
#define PUT_ROWS(next, at, rows, chunks)                                                                       \
  EACH(mesh_e, (rows) * (chunks)) {                                                                            \
    const int mesh_i = LOCAL_ID(0) + mesh_e * WG_X;                                                            \
    memory[(at) + mesh_i / (chunks) * ((chunks) | 1) + mesh_i % (chunks)] = next[mesh_e];                      \
  }

// --- Own rows as first operands, in registers or in workgroup memory ---

// Two neighbouring features of a row.
FN uint two(__global const uint16_t *row, int column, int width) {
  if (width % 2 == 0) return column < width ? *(__global const uint *)(row + column) : 0u;
  const uint lower = column < width ? row[column] : 0u;
  return column + 1 < width ? lower | (uint)row[column + 1] << 16 : lower;
}
#define LOAD_OWN(own, row_0, padded, length, width, step)                                                      \
  UNROLL for (int mesh_s = 0; mesh_s < (padded) / 16; ++mesh_s)                                                \
    UNROLL for (int mesh_w = 0; mesh_w < MATRICES * 4; ++mesh_w)                                               \
      own[mesh_s * MATRICES * 4 + mesh_w] =                                                                    \
          two((row_0) + IMIN(OWN_ROW(mesh_w / 4, mesh_w % 2), (length) - 1) * (step),                          \
              16 * mesh_s + mesh_w % 4 / 2 * 8 + lane % 4 * 2, width);
#define PUT_OWN(at, row_0, chunks, length, width, step)                                                        \
  for (int mesh_i = LOCAL_ID(0); mesh_i < OWN_ROWS * (chunks); mesh_i += WG_X)                                 \
    memory[(at) + mesh_i / (chunks) * ((chunks) | 1) + mesh_i % (chunks)] =                                    \
        eight((row_0) + IMIN(first + mesh_i / (chunks), (length) - 1) * (step), mesh_i % (chunks) * 8, width);
// x[4 m ...]: step s of matrix m.
#define FROM_MEMORY(x, at, s, stride) \
  UNROLL for (int mesh_m = 0; mesh_m < MATRICES; ++mesh_m) LOAD_MATRICES(x + 4 * mesh_m, memory, (at) + (mesh_m * 16 * (stride) + 2 * (s)) * 16)
#define FROM_REGISTERS(x, own, s) UNROLL for (int mesh_w = 0; mesh_w < MATRICES * 4; ++mesh_w) x[mesh_w] = own[(s) * MATRICES * 4 + mesh_w];
#if OWN_X_HELD
#define OWN_X(x, s) FROM_REGISTERS(x, own_x, s)
#else
#define OWN_X(x, s) FROM_MEMORY(x, at_own_x, s, STRIDE_D)
#endif
#if OWN_Y_HELD
#define OWN_Y(x, s) FROM_REGISTERS(x, own_y, s)
#else
#define OWN_Y(x, s) FROM_MEMORY(x, at_own_y, s, STRIDE_DV)
#endif

// --- Products. Of matrix m, n and e = 0 to 3: row OWN_ROW(m, e / 2) and column 8 n + pair + e % 2 ---
#define OWN_ROW(m, half_of) (first + own_rows + 16 * (m) + 8 * (half_of) + lane / 4)
#define SCORE(m, n, e) (((m) * (BC / 8) + (n)) * 4 + (e))
#define EACH_SCORE(m, h) UNROLL for (int m = 0; m < MATRICES; ++m) UNROLL for (int h = 0; h < 2; ++h)

// scores += own rows . streamed rows, of which the lane's are at `at`.
#define ADD_SCORES(scores, OWN, at, padded)                                                                    \
  UNROLL for (int mesh_s = 0; mesh_s < (padded) / 16; ++mesh_s) {                                              \
    uint mesh_a[MATRICES * 4];                                                                                 \
    OWN(mesh_a, mesh_s)                                                                                        \
    UNROLL for (int mesh_n = 0; mesh_n < BC / 8; mesh_n += 2) {                                                \
      uint mesh_b[4];                                                                                          \
      LOAD_MATRICES(mesh_b, memory, (at) + (mesh_n * 8 * ((padded) / 8 | 1) + 2 * mesh_s) * 16)                \
      UNROLL for (int mesh_m = 0; mesh_m < MATRICES; ++mesh_m)                                                 \
        UNROLL for (int mesh_c = 0; mesh_c < 2; ++mesh_c)                                                      \
          MMA(scores + SCORE(mesh_m, mesh_n + mesh_c, 0), mesh_a[4 * mesh_m], mesh_a[4 * mesh_m + 1],          \
              mesh_a[4 * mesh_m + 2], mesh_a[4 * mesh_m + 3], mesh_b[2 * mesh_c], mesh_b[2 * mesh_c + 1])      \
    }                                                                                                          \
  }

// parts[((m BC / 16 + j) PARTS + part) 4 ...]: the first operand for streamed rows 16 j to 16 j + 15 of matrix m.
#define PART_AT(m, j, part) ((((m) * (BC / 16) + (j)) * PARTS + (part)) * 4)
#define TO_PARTS(parts, x)                                                                                     \
  UNROLL for (int mesh_m = 0; mesh_m < MATRICES; ++mesh_m)                                                     \
    UNROLL for (int mesh_j = 0; mesh_j < BC / 16; ++mesh_j)                                                    \
      UNROLL for (int mesh_w = 0; mesh_w < 4; ++mesh_w) {                                                      \
        const float mesh_x = x[SCORE(mesh_m, 2 * mesh_j + mesh_w / 2, mesh_w % 2 * 2)];                        \
        const float mesh_y = x[SCORE(mesh_m, 2 * mesh_j + mesh_w / 2, mesh_w % 2 * 2 + 1)];                    \
        SPLIT(parts + PART_AT(mesh_m, mesh_j, 0) + mesh_w, mesh_x, mesh_y)                                     \
      }
// The upper part is cut off, not rounded, so that the rest is exact.
#if AB_TYPE == 1
#define UPPER_BITS 0xffff0000u
#else
#define UPPER_BITS 0xffffe000u
#endif
#if PARTS == 1
#define SPLIT(word, x, y) PACK_HALVES((word)[0], x, y)
#else
#define SPLIT(word, x, y)                                                                                      \
  const float upper_x = FLOAT_OF_BITS(BITS_OF(x) & UPPER_BITS);                                                \
  const float upper_y = FLOAT_OF_BITS(BITS_OF(y) & UPPER_BITS);                                                \
  PACK_HALVES((word)[0], upper_x, upper_y)                                                                     \
  PACK_HALVES((word)[4], (x) - upper_x, (y) - upper_y)
#endif

// sums += parts . streamed rows. Of f16 the parts are scaled by their row's `up`, and their products by `down`.
#define ADD_WEIGHTED(sums, parts, at, padded, FINISH_PRODUCT)                                                  \
  UNROLL for (int mesh_c = 0; mesh_c < (padded) / 16; ++mesh_c) {                                              \
    float mesh_product[MATRICES * 8];                                                                          \
    UNROLL for (int mesh_e = 0; mesh_e < MATRICES * 8; ++mesh_e) mesh_product[mesh_e] = START_PRODUCT_##FINISH_PRODUCT(sums, padded); \
    UNROLL for (int mesh_j = 0; mesh_j < BC / 16; ++mesh_j) {                                                  \
      uint mesh_b[4];                                                                                          \
      LOAD_TRANSPOSED(mesh_b, memory, (at) + (mesh_j * 16 * ((padded) / 8 | 1) + 2 * mesh_c) * 16)             \
      UNROLL for (int mesh_part = 0; mesh_part < PARTS; ++mesh_part)                                           \
        UNROLL for (int mesh_m = 0; mesh_m < MATRICES; ++mesh_m)                                               \
          UNROLL for (int mesh_n = 0; mesh_n < 2; ++mesh_n)                                                    \
            MMA(mesh_product + (2 * mesh_m + mesh_n) * 4, parts[PART_AT(mesh_m, mesh_j, mesh_part)],           \
                parts[PART_AT(mesh_m, mesh_j, mesh_part) + 1], parts[PART_AT(mesh_m, mesh_j, mesh_part) + 2],  \
                parts[PART_AT(mesh_m, mesh_j, mesh_part) + 3], mesh_b[2 * mesh_n], mesh_b[2 * mesh_n + 1])     \
    }                                                                                                          \
    UNROLL for (int mesh_e = 0; mesh_e < MATRICES * 8; ++mesh_e) sums[SUM_AT(padded, mesh_c, mesh_e)] = END_PRODUCT_##FINISH_PRODUCT(sums, padded); \
  }
// Element e of the pair of matrices 2 c and 2 c + 1: their rows of matrix e / 8.
#define SUM_AT(padded, c, e) (((e) / 8 * ((padded) / 8) + 2 * (c)) * 4 + (e) % 8)
#define START_PRODUCT_PLAIN(sums, padded) sums[SUM_AT(padded, mesh_c, mesh_e)]
#define END_PRODUCT_PLAIN(sums, padded) mesh_product[mesh_e]
#define START_PRODUCT_SCALED(sums, padded) 0.0f
#define END_PRODUCT_SCALED(sums, padded) \
  MAD(mesh_product[mesh_e], down[mesh_e / 8 * 2 + mesh_e % 4 / 2], sums[SUM_AT(padded, mesh_c, mesh_e)])

// Writes the sums, times `factor`.
#define WRITE_SUMS(sums, name, padded, width, length, heads_of, head_of, factor)                               \
  EACH_SCORE(m, h) {                                                                                           \
    const int i = OWN_ROW(m, h);                                                                               \
    if (i < (length)) {                                                                                        \
      __global uint16_t *row = name + ((batch * (length) + i) * (heads_of) + (head_of)) * (width);             \
      UNROLL for (int n = 0; n < (padded) / 8; ++n) {                                                          \
        const int column = 8 * n + pair;                                                                       \
        const uint x = HALF_OF(sums[(m * ((padded) / 8) + n) * 4 + 2 * h] * (factor));                         \
        const uint y = HALF_OF(sums[(m * ((padded) / 8) + n) * 4 + 2 * h + 1] * (factor));                     \
        if ((width) % 2 == 0) {                                                                                \
          if (column < (width)) *(__global uint *)(row + column) = x | y << 16;                                \
        } else {                                                                                               \
          if (column < (width)) row[column] = TO_HALF(x);                                                      \
          if (column + 1 < (width)) row[column + 1] = TO_HALF(y);                                              \
        }                                                                                                      \
      }                                                                                                        \
    }                                                                                                          \
  }

#if COMPUTE_DKV
#define OWN_LENGTH t_len
#define STREAMED_LENGTH s_len
#define OWN_STEP kv_heads
#define STREAMED_STEP heads
#define SKIP_TILES(tile) SKIP_QUERY_TILES(tile, last)
#define ALL_SHOWN ALL_QUERIES_SHOWN
#define FETCH_SCALARS(from)                                                                                    \
  EACH(mesh_e, 2 * BC) {                                                                                       \
    const int mesh_i = LOCAL_ID(0) + mesh_e * WG_X;                                                            \
    const int mesh_at = scalars + IMIN((from) + mesh_i % BC, s_len - 1);                                       \
    next_scalars[mesh_e] = mesh_i < BC ? LSE(mesh_at) * LOG2_E : NUMBER_AT(mesh_at);                           \
  }
#define PUT_SCALARS(at)                                                                                        \
  EACH(mesh_e, 2 * BC) ((__local float *)(memory + (at)))[LOCAL_ID(0) + mesh_e * WG_X] = next_scalars[mesh_e];
#else
#define OWN_LENGTH s_len
#define STREAMED_LENGTH t_len
#define OWN_STEP heads
#define STREAMED_STEP kv_heads
#define SKIP_TILES(tile) SKIP_KEYS(tile, last)
#define ALL_SHOWN ALL_KEYS_SHOWN
#define FETCH_SCALARS(from)
#define PUT_SCALARS(at)
#endif
#define FETCH(from)                                                                                            \
  FETCH_ROWS(next_x, streamed_x, BC, CHUNKS_D, from, STREAMED_LENGTH, D, STREAMED_STEP * D)                    \
  FETCH_ROWS(next_y, streamed_y, BC, CHUNKS_DV, from, STREAMED_LENGTH, DV, STREAMED_STEP * DV)                 \
  FETCH_SCALARS(from)
#define PUT(at)                                                                                                \
  PUT_ROWS(next_x, at, BC, CHUNKS_D)                                                                           \
  PUT_ROWS(next_y, (at) + Y_AT, BC, CHUNKS_DV)                                                                 \
  PUT_SCALARS((at) + SCALARS_AT)

KERNEL_BEGIN
  const int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    const int lane = LOCAL_ID(0) % 32;
    const int pair = lane % 4 * 2;
    const int own_rows = LOCAL_ID(0) / 32 * MATRIX_M;
    const float scale_log2 = scale * LOG2_E;
#if COMPUTE_DKV
    const int first = item % blocks * OWN_ROWS;
    const int count = IMIN(OWN_ROWS, t_len - first);
    const int group = item / blocks % kv_heads;
    const int batch = item / blocks / kv_heads;
    const int head_begin = group * (heads / kv_heads);
    const int head_end = head_begin + heads / kv_heads;
    DECODE_EXTRAS(items / blocks / kv_heads, batch)
    const int begin = prefix > first ? 0 : IMAX(first - offset - right, 0);
    const int last = prefix > first ? s_len : IMIN(first + count - offset + left, s_len);
    __global const uint16_t *row_0_x = k + (batch * t_len * kv_heads + group) * D;
    __global const uint16_t *row_0_y = v + (batch * t_len * kv_heads + group) * DV;
#else
    // Under a causal mask the last rows have most to do.
    const int first = (blocks - 1 - item % blocks) * OWN_ROWS;
    const int count = IMIN(OWN_ROWS, s_len - first);
    const int head_begin = item / blocks % heads;
    const int head_end = head_begin + 1;
    const int batch = item / blocks / heads;
    const int group = head_begin / (heads / kv_heads);
    DECODE_EXTRAS(items / blocks / heads, batch)
    int begin = IMIN(IMAX(first + offset - left, 0), t_len);
    int last = IMIN(first + count + offset + right, t_len);
    if (prefix > 0) {
      last = begin < last ? IMAX(last, prefix) : prefix;
      begin = 0;
    }
    ALIGN_TO_STEPS(begin)
    __global const uint16_t *row_0_x = q + (batch * s_len * heads + head_begin) * D;
    __global const uint16_t *row_0_y = dout + (batch * s_len * heads + head_begin) * DV;
#endif
#if OWN_X_HELD
    uint own_x[DP / 16 * MATRICES * 4];
    LOAD_OWN(own_x, row_0_x, DP, OWN_LENGTH, D, OWN_STEP * D)
#else
    PUT_OWN(OWN_X_AT, row_0_x, CHUNKS_D, OWN_LENGTH, D, OWN_STEP * D)
    const uint at_own_x = MMA_ADDRESS(memory) + 16 * (OWN_X_AT + (own_rows + lane % 16) * STRIDE_D + lane / 16);
#endif
#if OWN_Y_HELD
    uint own_y[DVP / 16 * MATRICES * 4];
    LOAD_OWN(own_y, row_0_y, DVP, OWN_LENGTH, DV, OWN_STEP * DV)
#else
    PUT_OWN(OWN_Y_AT, row_0_y, CHUNKS_DV, OWN_LENGTH, DV, OWN_STEP * DV)
    const uint at_own_y = MMA_ADDRESS(memory) + 16 * (OWN_Y_AT + (own_rows + lane % 16) * STRIDE_DV + lane / 16);
#endif
    // Of a tile, what the lane names of four matrices of 8 x 8 (see matmul_ptx_mma.cl), as they lie and transposed.
    const int streamed_row = lane % 8 + lane / 16 * 8;
    const uint at_x = MMA_ADDRESS(memory) + 16 * (streamed_row * STRIDE_D + lane / 8 % 2);
    const uint at_y = MMA_ADDRESS(memory) + 16 * (Y_AT + streamed_row * STRIDE_DV + lane / 8 % 2);
    const uint turned_x = MMA_ADDRESS(memory) + 16 * (lane % 16 * STRIDE_D + lane / 16);
    float sums_x[MATRICES * DP / 2];
    UNROLL for (int e = 0; e < MATRICES * DP / 2; ++e) sums_x[e] = 0.0f;
#if COMPUTE_DKV
    const uint turned_y = MMA_ADDRESS(memory) + 16 * (Y_AT + lane % 16 * STRIDE_DV + lane / 16);
    float sums_v[MATRICES * DVP / 2];
    UNROLL for (int e = 0; e < MATRICES * DVP / 2; ++e) sums_v[e] = 0.0f;
    float next_scalars[EACH_OF(2 * BC)];
#endif
    int segment[MATRICES * 2];
    EACH_SCORE(m, h) segment[2 * m + h] = !HAS_SEGMENTS ? 0 : COMPUTE_DKV ? KEY_SEGMENT(OWN_ROW(m, h)) : QUERY_SEGMENT(OWN_ROW(m, h));
    uint4 next_x[EACH_OF(BC * CHUNKS_D)];
    uint4 next_y[EACH_OF(BC * CHUNKS_DV)];
    int stage = 0;
    for (int head = head_begin; head < head_end; ++head) {
      const int scalars = (batch * heads + head) * s_len;
      DECODE_HEAD
#if COMPUTE_DKV
      __global const uint16_t *streamed_x = q + (batch * s_len * heads + head) * D;
      __global const uint16_t *streamed_y = dout + (batch * s_len * heads + head) * DV;
#else
      __global const uint16_t *streamed_x = k + (batch * t_len * kv_heads + group) * D;
      __global const uint16_t *streamed_y = v + (batch * t_len * kv_heads + group) * DV;
      float row_lse[MATRICES * 2];
      float row_delta[MATRICES * 2];
      EACH_SCORE(m, h) {
        const int i = OWN_ROW(m, h);
        const int at = scalars + IMIN(i, s_len - 1);
        row_lse[2 * m + h] = i < s_len ? LSE(at) * LOG2_E : INFINITY_F;
        row_delta[2 * m + h] = NUMBER_AT(at);
      }
#endif
      int tile = begin;
      SKIP_TILES(tile)
      FETCH(tile)
      PUT(stage * STAGE_CHUNKS)
      BARRIER();
      while (tile < last) {
        int next_tile = tile + BC;
        SKIP_TILES(next_tile)
        if (next_tile < last) {
          FETCH(next_tile)
        }
        const uint here = stage * STAGE_CHUNKS * 16;
        float p[MATRICES * BC / 2];
        float ds[MATRICES * BC / 2];
        UNROLL for (int e = 0; e < MATRICES * BC / 2; ++e) {
          p[e] = 0.0f;
          ds[e] = 0.0f;
        }
        ADD_SCORES(p, OWN_X, here + at_x, DP)
        ADD_SCORES(ds, OWN_Y, here + at_y, DVP)
#if COMPUTE_DKV
        __local const float *of_queries = (__local const float *)(memory + stage * STAGE_CHUNKS + SCALARS_AT) + pair;
#endif
        EACH_SCORE(m, h) {
          const int own_row = OWN_ROW(m, h);
          UNROLL for (int n = 0; n < BC / 8; ++n) {
            UNROLL for (int u = 0; u < 2; ++u) {
              const int e = SCORE(m, n, 2 * h + u);
#if COMPUTE_DKV
              const int i = tile + 8 * n + pair + u;
              const int j = own_row;
              const float of_lse = of_queries[8 * n + u];
              const float of_delta = of_queries[BC + 8 * n + u];
#else
              const int i = own_row;
              const int j = tile + 8 * n + pair + u;
              const float of_lse = row_lse[2 * m + h];
              const float of_delta = row_delta[2 * m + h];
#endif
              float softcap_grad;
              LOGIT(p[e], softcap_grad, i, j)
              p[e] = EXP2(p[e] - of_lse);
              ds[e] = p[e] * (ds[e] - of_delta) * softcap_grad;
            }
          }
        }
        if (!ALL_SHOWN(tile)) {
          EACH_SCORE(m, h) {
            const int own_row = OWN_ROW(m, h);
            const int column = tile + pair;
#if COMPUTE_DKV
            DECODE_SHOWN_QUERIES(own_row, column)
#else
            DECODE_SHOWN_KEYS(own_row, column)
#endif
            UNROLL for (int n = 0; n < BC / 8; ++n) {
              UNROLL for (int u = 0; u < 2; ++u) {
                const int e = SCORE(m, n, 2 * h + u);
                const int other = column + 8 * n + u;
#if COMPUTE_DKV
                bool shown = IS_SHOWN_QUERY(8 * n + u) && SEES_BIT(other, own_row);
                if (HAS_SEGMENTS) shown = shown && segment[2 * m + h] == QUERY_SEGMENT(other);
#else
                bool shown = IS_SHOWN_KEY(8 * n + u) && SEES_BIT(own_row, other);
                if (HAS_SEGMENTS) shown = shown && segment[2 * m + h] == KEY_SEGMENT(other);
#endif
                p[e] = shown ? p[e] : 0.0f;
                ds[e] = shown ? ds[e] : 0.0f;
              }
            }
          }
        }
        uint parts[MATRICES * BC / 4 * PARTS];
#if COMPUTE_DKV
        UNROLL for (int e = 0; e < MATRICES * BC / 2; ++e) p[e] *= P_SCALE;
        TO_PARTS(parts, p)
        ADD_WEIGHTED(sums_v, parts, here + turned_y, DVP, PLAIN)
#endif
#if AB_TYPE == 1
        TO_PARTS(parts, ds)
        ADD_WEIGHTED(sums_x, parts, here + turned_x, DP, PLAIN)
#else
        // Scales each row by a power of two into the range where f16 is normal, for the low parts too.
        float down[MATRICES * 2];
        EACH_SCORE(m, h) {
          float largest = 0.0f;
          UNROLL for (int e = 0; e < BC / 4; ++e) largest = FMAX(largest, FABS(ds[SCORE(m, e / 2, 2 * h + e % 2)]));
          UNROLL for (int mask = 1; mask < 4; mask *= 2) {
            float of_other;
            SHUFFLE_XOR(of_other, largest, mask)
            largest = FMAX(largest, of_other);
          }
          const uint exponent = (uint)IMIN(IMAX(BITS_OF(largest) >> 23 & 255u, 10), 253);
          const float up = FLOAT_OF_BITS((263u - exponent) << 23);
          down[2 * m + h] = FLOAT_OF_BITS((exponent - 9u) << 23);
          UNROLL for (int e = 0; e < BC / 4; ++e) ds[SCORE(m, e / 2, 2 * h + e % 2)] *= up;
        }
        TO_PARTS(parts, ds)
        ADD_WEIGHTED(sums_x, parts, here + turned_x, DP, SCALED)
#endif
        stage ^= 1;
        if (next_tile < last) {
          PUT(stage * STAGE_CHUNKS)
        }
        BARRIER();
        tile = next_tile;
      }
    }
#if COMPUTE_DKV
    WRITE_SUMS(sums_x, dk, DP, D, t_len, kv_heads, group, scale)
    WRITE_SUMS(sums_v, dv, DVP, DV, t_len, kv_heads, group, (1.0f / P_SCALE))
#else
    WRITE_SUMS(sums_x, dq, DP, D, s_len, heads, head_begin, scale)
#endif
  }
KERNEL_END
