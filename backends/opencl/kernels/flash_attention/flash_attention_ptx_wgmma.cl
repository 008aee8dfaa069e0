// Attention forward of 16-bit floats on the tensor cores of NVIDIA's compute capability 9.0 (wgmma.inc): a workgroup takes OWN_ROWS
// query rows of one head, 64 of each warpgroup, and streams tiles of BC keys past them with an online softmax. Queries and
// probabilities are operands in registers, keys and values stand in workgroup memory. The scores of the next tile are multiplied
// before the values of this one, so that its softmax runs beside them.
// There is room for STAGES tiles, and tiles are copied AHEAD of their use. `full` says that a tile has arrived, `empty` that nobody
// reads it any more: warpgroups wait for each other only where one is STAGES - AHEAD - 1 tiles in front.
// Sources: Dao, FlashAttention-2 (2023), algorithm 1; Shah and others, FlashAttention-3 (2024), algorithm 2.
#if BIAS
#define BINDINGS(X) X(0, R, uint16_t, q) X(1, R, uint16_t, k) X(2, R, uint16_t, v) X(3, R, int, extras) \
  X(4, R, float, bias) X(5, W, uint16_t, o) X(6, W, float, lse)
#else
#define BINDINGS(X) X(0, R, uint16_t, q) X(1, R, uint16_t, k) X(2, R, uint16_t, v) X(3, R, int, extras) \
  X(4, W, uint16_t, o) X(5, W, float, lse)
#endif
// blocks: of query rows per head; items: batch x heads x blocks
#define CONSTANTS(X) X(0, int, s_len) X(1, int, t_len) X(2, int, heads) X(3, int, kv_heads) X(4, int, blocks) \
  X(5, int, items) X(6, float, scale) EXTRA_CONSTANTS(X)
#define SEGMENTS_SHOWN (!HAS_SEGMENTS || same_segment)
#include "attention_mma.inc"
#include "wgmma.inc"
#define AHEAD 2
typedef struct {
  uint4 rows[64];
} __attribute__((aligned(1024))) EightRows;
// Queries stand in front of the tiles, and sums at the end. Of a tile the keys stand in blocks of 64 features, and the values in
// blocks of 64 keys of blocks of 64 features.
#define KILOBYTES(bytes) (((bytes) + 1023) / 1024)
#define OWN_KILOBYTES KILOBYTES(OWN_ROWS * LARGER(STRIDE(DP), STRIDE(DVP)) * 16)
#define KEY_BYTES (BC * D * 2)
#define TILE_BYTES (BC * (D + DV) * 2)
#define SHARED(X)                                                                   \
  X(EightRows, eight_rows, (OWN_KILOBYTES + STAGES * (TILE_BYTES / 1024))) \
  X(ulong, barriers, 2 * STAGES) MMA_SHARED(X)
#define STAGE_AT(stage) (tiles + (uint)(stage) * TILE_BYTES)
#define KEY_PLACE(row, word) ((word) / 8 * (BC * 128) + (row) * 128 + (word) % 8 * 16)
#define VALUE_PLACE(row, word) ((row) / 64 * (DV * 128) + (word) / 8 * 8192 + (row) % 64 * 128 + (word) % 8 * 16)
// Begins the copies of a tile's rows of keys or values, from row `from` on; those beyond the end are the last.
#define COPY_SWIZZLED(at, PLACE, name, base, from, width)                                               \
  UNROLL for (int mesh_e = 0; mesh_e < (BC * ((width) / 8) + WG_X - 1) / WG_X; ++mesh_e) {              \
    const int mesh_c = LOCAL_ID(0) + mesh_e * WG_X;                                                     \
    if (BC * ((width) / 8) % WG_X == 0 || mesh_c < BC * ((width) / 8)) {                                \
      const int mesh_row = mesh_c / ((width) / 8);                                                      \
      const int mesh_word = mesh_c % ((width) / 8);                                                     \
      COPY_ASYNC(memory, (at) + SWIZZLE((uint)PLACE(mesh_row, mesh_word)),                              \
                 name + ((base) + IMIN((from) + mesh_row, t_len - 1) * (kv_heads * (width)) + 8 * mesh_word)) \
    }                                                                                                   \
  }
#define FIND_TILE(tile, same) \
  SKIP_KEYS(tile, last)       \
  SKIP_SEGMENTS(tile, last, KEY_SEGMENT, same)
// Stages follow each other in turns; a phase is one turn of all of them.
#define NEXT_STAGE(stage, phase)               \
  stage = stage == STAGES - 1 ? 0 : stage + 1; \
  if (stage == 0) phase ^= 1;
// Begins the copies of the next tile, if there is one, into the stage that is next.
#define COPY_NEXT_TILE()                                                                  \
  if (copied < last) {                                                                    \
    WAIT_UNTIL_EMPTY(into, into_phase)                                                    \
    COPY_SWIZZLED(STAGE_AT(into), KEY_PLACE, k, base_k, copied, D)                        \
    COPY_SWIZZLED(STAGE_AT(into) + KEY_BYTES, VALUE_PLACE, v, base_v, copied, DV)         \
    COPIES_ARRIVE(into)                                                                   \
    NEXT_STAGE(into, into_phase)                                                          \
    copied += BC;                                                                         \
    bool mesh_same = false;                                                               \
    FIND_TILE(copied, mesh_same)                                                          \
    (void)mesh_same;                                                                      \
  }
// `tile` becomes the next one, if there is one, and has arrived.
#define FIND_NEXT_TILE()                        \
  tile += BC;                                   \
  FIND_TILE(tile, same_segment)                 \
  if (tile < last) {                            \
    int mesh_stage = stage, mesh_phase = phase; \
    NEXT_STAGE(mesh_stage, mesh_phase)          \
    WAIT_UNTIL_FULL(mesh_stage, mesh_phase)     \
  }
#ifndef MMA_BY_HAND
#define BEGIN_BARRIERS()                                       \
  const uint full = MMA_ADDRESS(barriers);                     \
  const uint empty = full + 8u * STAGES;                       \
  if (LOCAL_ID(0) == 0) {                                      \
    UNROLL for (int mesh_s = 0; mesh_s < STAGES; ++mesh_s) {   \
      INIT_BARRIER(full + 8u * mesh_s, WG_X)                   \
      INIT_BARRIER(empty + 8u * mesh_s, WARPS)                 \
    }                                                          \
    INIT_BARRIERS_END()                                        \
  }                                                            \
  BARRIER();
#define WAIT_UNTIL_FULL(stage, phase)                   \
  WAIT_OR_GIVE_UP(full + 8u * (uint)(stage), phase, lost) \
  WRITES_ARE_SEEN()
#define WAIT_UNTIL_EMPTY(stage, phase) WAIT_OR_GIVE_UP(empty + 8u * (uint)(stage), (phase) ^ 1, lost)
#define COPIES_ARRIVE(stage) ARRIVE_AFTER_COPIES(full + 8u * (uint)(stage))
#define RELEASE(stage) \
  if (lane == 0) ARRIVE(empty + 8u * (uint)(stage))
// high and low: words of x and y, and of what the first leaves of them.
#if AB_TYPE == 1
#define VALUES_OF_WORD(x, y, word)          \
  x = FLOAT_OF_BITS((word) << 16);          \
  y = FLOAT_OF_BITS((word) & 0xffff0000u);
#else
#define VALUES_OF_WORD(x, y, word)                                          \
  asm("{\n\t.reg .b16 lower, upper;\n\tmov.b32 {lower, upper}, %2;\n\t"     \
      "cvt.f32.f16 %0, lower;\n\tcvt.f32.f16 %1, upper;\n\t}"               \
      : "=f"(x), "=f"(y)                                                    \
      : "r"(word));
#endif
#else
// By hand a barrier before a tile is read, behind all copies of it, is enough.
#define BEGIN_BARRIERS()
#define WAIT_UNTIL_FULL(stage, phase) BARRIER();
#define WAIT_UNTIL_EMPTY(stage, phase)
#define COPIES_ARRIVE(stage)
#define RELEASE(stage)
#define VALUES_OF_WORD(x, y, word)     \
  x = FACTOR_OF((word) & 0xffffu);     \
  y = FACTOR_OF((word) >> 16);
#endif
#define SPLIT_WORDS(high, low, x, y)                           \
  {                                                            \
    float mesh_x, mesh_y;                                      \
    PACK_PAIR(high, x, y)                                      \
    VALUES_OF_WORD(mesh_x, mesh_y, high)                       \
    PACK_PAIR(low, (x) - mesh_x, (y) - mesh_y)                 \
  }
// Scores of the tile at `stage`.
#define MULTIPLY_KEYS(stage)                                                                              \
  WGMMA_OWN_FIRST(BC, x, own, STAGE_AT(stage), 1)                                                         \
  UNROLL for (int mesh_k = 1; mesh_k < D / 16; ++mesh_k)                                                  \
    WGMMA_OWN(BC, x, own + 4 * mesh_k, STAGE_AT(stage) + (uint)(mesh_k / 4 * (BC * 128) + mesh_k % 4 * 32), 1) \
  WGMMA_END()
// Adds the tile's values by their probabilities.
#define MULTIPLY_VALUES(stage)                                                                            \
  UNROLL for (int mesh_j = 0; mesh_j < BC / 16; ++mesh_j)                                                 \
    UNROLL for (int mesh_part = 0; mesh_part < 2; ++mesh_part)                                            \
      WGMMA_OWN(DV, sums, p + mesh_j * 8 + mesh_part * 4,                                                 \
                STAGE_AT(stage) + (uint)(KEY_BYTES + mesh_j / 4 * (DV * 128) + mesh_j % 4 * 2048), 0)      \
  WGMMA_END()
// Scores of log2 as soon as they are multiplied by `factor`. Without options that waits for the exponent.
#define LOGITS (SOFT_CAP || HAS(SLOPES) || BIAS != 0 || !POSITIVE_SCALE)
// As in flash_attention_ptx_mma.cl.
#define SLACK 8.0f
#if AB_TYPE == 1
#define LOG2_SCALE 0.0f
#else
#define LOG2_SCALE 7.0f
#endif
// Makes probabilities of the scores x, and `rescale` what sums must be multiplied by where `grows`.
#define SOFTMAX(tile)                                                                                     \
  {                                                                                                       \
    if (LOGITS) {                                                                                         \
      FOR_EACH_SCORE(m, n, e) {                                                                           \
        float softcap_grad;                                                                               \
        LOGIT(x[SCORE(m, n, e)], softcap_grad, first + OWN_ROW(m, e), (tile) + COLUMN(n, e))              \
      }                                                                                                   \
    }                                                                                                     \
    if (!ALL_KEYS_SHOWN(tile)) { MASK_KEYS(x, tile, MASKED_SCORE) }                                       \
    float largest[2] = {MASKED_SCORE, MASKED_SCORE};                                                      \
    FOR_EACH_SCORE(m, n, e) largest[e / 2] = FMAX(largest[e / 2], x[SCORE(m, n, e)]);                     \
    OVER_QUADS(largest, FMAX)                                                                             \
    grows = false;                                                                                        \
    UNROLL for (int r = 0; r < 2; ++r) {                                                                  \
      largest[r] = largest[r] > 0.5f * MASKED_SCORE ? largest[r] * factor : MASKED_SCORE;                 \
      grows = grows || largest[r] > base[r] + SLACK;                                                      \
    }                                                                                                     \
    if (grows) {                                                                                          \
      UNROLL for (int r = 0; r < 2; ++r) {                                                                \
        const float next_base = FMAX(base[r], largest[r]);                                                \
        EXP2(rescale[r], base[r] - next_base)                                                             \
        base[r] = next_base;                                                                              \
        row_sum[r] *= rescale[r];                                                                         \
        /* For a row that has seen no key so far, so that its probabilities are 0. */                     \
        from[r] = next_base > 0.5f * MASKED_SCORE ? next_base - LOG2_SCALE : 0.0f;                        \
      }                                                                                                   \
    }                                                                                                     \
    FOR_EACH_SCORE(m, n, e) {                                                                             \
      EXP2(x[SCORE(m, n, e)], MAD(x[SCORE(m, n, e)], factor, -from[e / 2]))                               \
      row_sum[e / 2] += x[SCORE(m, n, e)];                                                                \
    }                                                                                                     \
  }
// The probabilities as operands: of each 16 keys four words of high parts and four of low ones.
#define SPLIT_PROBABILITIES()                                                                             \
  UNROLL for (int mesh_j = 0; mesh_j < BC / 16; ++mesh_j)                                                 \
    UNROLL for (int mesh_e = 0; mesh_e < 4; ++mesh_e) {                                                   \
      const int mesh_s = SCORE(0, 2 * mesh_j + mesh_e / 2, mesh_e % 2 * 2);                               \
      SPLIT_WORDS(p[mesh_j * 8 + mesh_e], p[mesh_j * 8 + 4 + mesh_e], x[mesh_s], x[mesh_s + 1])           \
    }

KERNEL_BEGIN
  __local uint4 *memory = (__local uint4 *)eight_rows;
  int item = GROUP_ID(1) * NUM_GROUPS(0) + GROUP_ID(0);
  if (item < items) {
    DECLARE_LANE
    // Under a causal mask the last rows take longest: they begin first.
    int first = (blocks - 1 - item % blocks) * OWN_ROWS;
    int count = IMIN(OWN_ROWS, s_len - first);
    int head = item / blocks % heads;
    int batch = item / blocks / heads;
    int group = head / (heads / kv_heads);
    const float scale_log2 = scale * LOG2_E;
    const float factor = LOGITS ? 1.0f : scale_log2;
    DECODE_EXTRAS(items / blocks / heads, batch)
    DECODE_HEAD
    DECLARE_SHOWN_KEYS
    const int base_q = (batch * s_len * heads + head) * D;
    const int base_k = (batch * t_len * kv_heads + group) * D;
    const int base_v = (batch * t_len * kv_heads + group) * DV;
    const uint tiles = MMA_ADDRESS(memory) + OWN_KILOBYTES * 1024u;
    uint lost = 0u;
    BEGIN_BARRIERS()
    DECLARE_OWN_SEGMENTS(QUERY_SEGMENT)
    bool same_segment = false;
    int tile = begin;
    FIND_TILE(tile, same_segment)
    int copied = tile, into = 0, into_phase = 0;
    COPY_ROWS(0, OWN_ROWS, q, base_q, first, s_len, DP, D, heads * D)
    COPIES_END()
    UNROLL for (int a = 0; a < AHEAD; ++a) { COPY_NEXT_TILE() }
    COPIES_END()
    WAIT_FOR_COPIES_BUT(1)
    BARRIER();
    uint own[OWN_WORDS(DP)];
    LOAD_OWN(own, 0, DP)

    // Of the lane's rows: the logit, in units of log2, that probabilities are relative to, the same as it is subtracted, and of the
    // sum of the probabilities what the lane's own keys add.
    float base[2], from[2], row_sum[2], rescale[2] = {1.0f, 1.0f};
    int segment[2];
    UNROLL for (int r = 0; r < 2; ++r) {
      base[r] = HAS(SINK) ? NUMBER_AT(sink_at + head) * LOG2_E : MASKED_SCORE;
      from[r] = HAS(SINK) ? base[r] - LOG2_SCALE : 0.0f;
      row_sum[r] = HAS(SINK) && lane % 4 == 0 ? exp2(LOG2_SCALE) : 0.0f;
      segment[r] = HAS_SEGMENTS ? QUERY_SEGMENT(first + OWN_ROW(0, r * 2)) : 0;
    }
    float sums[SUMS(DVP)];
    UNROLL for (int e = 0; e < SUMS(DVP); ++e) sums[e] = 0.0f;
    if (tile < last) {
      float x[SCORES];
      uint p[BC / 2];
      bool grows = false;
      int stage = 0, phase = 0;
      WAIT_UNTIL_FULL(stage, phase)
      WGMMA_BEGIN()
      MULTIPLY_KEYS(stage)
      COPY_NEXT_TILE()
      WGMMA_WAIT_BUT(0)
      WGMMA_ARRIVED(BC, x)
      SOFTMAX(tile)
      FIND_NEXT_TILE()
      SPLIT_PROBABILITIES()
      while (tile < last) {
        const int before = stage;
        NEXT_STAGE(stage, phase)
        WGMMA_BEGIN()
        MULTIPLY_KEYS(stage)
        MULTIPLY_VALUES(before)
        COPY_NEXT_TILE()
        WGMMA_WAIT_BUT(1)
        WGMMA_ARRIVED(BC, x)
        SOFTMAX(tile)
        // Here, and not in front of its product: the assembler moves no exponential past a wait that may be repeated, and the fence
        // in it stands far behind the copies.
        WGMMA_ARRIVED(BC, x)
        FIND_NEXT_TILE()
        WGMMA_WAIT_BUT(0)
        WGMMA_ARRIVED(DV, sums)
        RELEASE(before)
        if (grows) {
          UNROLL for (int e = 0; e < SUMS(DVP); ++e) sums[e] *= rescale[e % 4 / 2];
        }
        SPLIT_PROBABILITIES()
      }
      WGMMA_BEGIN()
      MULTIPLY_VALUES(stage)
      WGMMA_WAIT_BUT(0)
      WGMMA_ARRIVED(DV, sums)
    }
    OVER_QUADS(row_sum, SUM_OF_TWO)
    UNROLL for (int r = 0; r < 2; ++r) {
      int i = first + OWN_ROW(0, r * 2);
      // A row that saw no key at all is 0; one whose keys never arrived is no number.
      if (lost != 0u) row_sum[r] = NAN;
      if (lane % 4 == 0 && i < s_len)
        STORE(lse, (batch * heads + head) * s_len + i,
              row_sum[r] <= 0.0f ? -INFINITY_F : (base[r] + log2(row_sum[r]) - LOG2_SCALE) * LN_2);
      row_sum[r] = row_sum[r] <= 0.0f ? 0.0f : 1.0f / row_sum[r];
    }
    WRITE_SUMS(sums, o, DVP, DV, s_len, heads, head, row_sum)
  }
KERNEL_END
