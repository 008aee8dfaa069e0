// Matmul of 16-bit floats on the matrix unit. A workgroup of SUBGROUPS_M x SUBGROUPS_N subgroups computes BM x BN of C,
// each of them MATRICES_M x MATRICES_N matrices. Tiles of A and B, BK deep, go through workgroup memory (operand_tile.inc); the
// next ones are on their way while these are multiplied.
// WIDE_A, WIDE_B, WIDE_C: rows in device memory are multiples of eight elements. WHOLE_STEPS: K is a multiple of BK, so that
// nothing need be replaced by zeros. C_TYPE: 0 is f32, 1 bf16, 2 f16.
#include "cooperative.inc"
#include "operand_tile.inc"
#include "matmul_groups.inc"
#if C_TYPE
#define BINDINGS(X) X(0, R, uint16_t, a) X(1, R, uint16_t, b) X(2, R, float, bias) X(3, R, uint16_t, residual) \
  X(4, W, uint16_t, c) X(5, R, float, before) MORE_BINDINGS(X)
#else
#define BINDINGS(X) X(0, R, uint16_t, a) X(1, R, uint16_t, b) X(2, R, float, bias) X(3, R, float, residual) \
  X(4, W, float, c) X(5, R, float, before) MORE_BINDINGS(X)
#endif
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end) \
  MORE_CONSTANTS(X)
#include "matmul_epilogue.inc"
#include "matmul_epilogue_wide.inc"

#define BM (SUBGROUPS_M * MATRICES_M * MATRIX_M)
#define BN (SUBGROUPS_N * MATRICES_N * MATRIX_N)
#define WORDS (BK / 8)
#define PAIRS (BK / 2)
// A whose rows are those of K is turned, and so is B. MATRIX_A, MATRIX_B: words from one matrix of a tile to the next, by which the
// compiler sees that their places differ by constants.
#define TURN_A TRANS_A
#define TURN_B (1 - TRANS_B)
#if TURN_A
#define TILE_A TURNED_WORDS(BM, WORDS, MATRIX_M)
#define ROW_OF_A(row) TURNED_ROW(row, WORDS, MATRIX_M)
#define MATRIX_A (MATRIX_M * ROW_STRIDE(WORDS) + 2)
#else
#define TILE_A (BM * ROW_STRIDE(WORDS))
#define ROW_OF_A(row) ((row) * ROW_STRIDE(WORDS))
#define MATRIX_A (MATRIX_M * ROW_STRIDE(WORDS))
#endif
#if TURN_B
#define TILE_B TURNED_WORDS(BN, WORDS, MATRIX_N)
#define ROW_OF_B(row) TURNED_ROW(row, WORDS, MATRIX_N)
#define MATRIX_B (MATRIX_N * ROW_STRIDE(WORDS) + 2)
#else
#define TILE_B (BN * ROW_STRIDE(WORDS))
#define ROW_OF_B(row) ((row) * ROW_STRIDE(WORDS))
#define MATRIX_B (MATRIX_N * ROW_STRIDE(WORDS))
#endif
// The sums of a subgroup go through workgroup memory by strips of MATRIX_M rows, in words of four.
#define STRIP_STRIDE (MATRICES_N * MATRIX_N / 4 + 1)
#define STRIP_ITEMS (MATRIX_M * MATRICES_N * MATRIX_N / 8)
#define STRIPS (SUBGROUPS_M * SUBGROUPS_N * MATRIX_M * STRIP_STRIDE)
#define LARGER(x, y) ((x) > (y) ? (x) : (y))
// ROLLED: an iteration is one step of the products, because ANV has sums twice in registers that go through several of them. There
// are two tiles in turns, so that a step has one barrier. Mesa unrolls no loop around another, and an array with an index of such a loop
// would be in memory: strips are written out.
#ifdef ROLLED
#if BK != MATRIX_K
#error ROLLED has one step.
#endif
#define BUFFERS 2
#define IN_BUFFER(word) (turn + (word))
#define UNROLL_STRIP DONT_UNROLL
#else
#define BUFFERS 1
#define IN_BUFFER(word) (word)
#define UNROLL_STRIP UNROLL
#endif
// A subgroup of 8 has as many registers as one of 16, of half the length, and products of groups need more: what is used only behind
// the products is computed, or read from workgroup memory, behind them.
#if defined(ROLLED) && GROUPED != 0 && LANES_OF_SUBGROUP == 8
#define BEHIND_LOOP(number) IMAX(number, -1 - k0)  // as if it depended on the loop
#define SHARED(X) X(uvec4, tiles, LARGER(BUFFERS * (TILE_A + TILE_B), STRIPS)) GROUP_SHARED(X)
#else
#define SHARED(X) X(uvec4, tiles, LARGER(BUFFERS * (TILE_A + TILE_B), STRIPS))
#endif

// What an invocation loads of a tile: words of rows along K, or units of two words that are turned.
#define UNITS(turned, side) (turned != 0 ? TURNED_UNITS(PAIRS, (side) / 8) : (side) * WORDS)
#define EACH(turned, side) ((UNITS(turned, side) + WG_X - 1) / WG_X)
#define HELD(turned, side) (EACH(turned, side) * (1 + turned))
// The place of the invocation's load e: x is a row of the tile, or the first of eight; y the step of K. Invocations are counted by
// subgroups, so that where a whole one has no load the compiler sees it.
FN ivec2 place_of(int e, int turned, int side) {
  uint id = gl_SubgroupID * uint(LANES_OF_SUBGROUP) + gl_SubgroupInvocationID;
  uint at = id + uint(e * WG_X);
  if (UNITS(turned, side) % WG_X != 0) at = min(at, uint(UNITS(turned, side) - 1));
  if (turned == 0) return ivec2(at / uint(WORDS), at % uint(WORDS) * 8u);
  ivec2 unit = turned_unit(at, uint(PAIRS), uint(side / 8));
  // Of eight pairs an invocation has one, in all that it loads of both tiles, and one register where steps are told from those behind K.
  if (PAIRS == 8 && WG_X % 32 == 0 && WHOLE_STEPS == 0) unit.x = int(id / 4u % 8u);
  return ivec2(unit.y * 8, unit.x * 2);
}
#define IS_OWN(e, turned, side, row)                                                                          \
  ((UNITS(turned, side) % WG_X == 0 ||                                                                        \
    (UNITS(turned, side) % LANES_OF_SUBGROUP == 0                                                             \
         ? own + e * (WG_X / LANES_OF_SUBGROUP) < UNITS(turned, side) / LANES_OF_SUBGROUP                      \
         : own * LANES_OF_SUBGROUP + lane + e * WG_X < UNITS(turned, side))) &&                               \
   ((side) % 32 == 0 || row < side))

// The words of the tile that begins at step k_at, of an operand of `rows` rows of M or N, of which the tile's first is r0. `first` has
// the word of each load at step 0: the loop adds only what is the same for all. Behind K the words are others, up to the operand's
// `last`, and are replaced by zeros when they are written.
#define FIRST_WORD(e, turned, side, base, r0, rows)                                                           \
  (turned != 0 ? ((base) >> 3) + IMIN(((r0) + place_of(e, turned, side).x) >> 3, ((rows) >> 3) - 1) +         \
                     place_of(e, turned, side).y * ((rows) >> 3)                                              \
               : ((base) + IMIN((r0) + place_of(e, turned, side).x, (rows) - 1) * k + place_of(e, turned, side).y) >> 3)
#define LAST_WORD(base, rows) ((((base) + (rows) * k) >> 3) - 1)
#if WHOLE_STEPS
#define WORD_AT(word, last) (word)
#else
#define WORD_AT(word, last) IMIN(word, last)
#endif
#define FETCH_WIDE(held, first, last, turned, side, name, rows, k_at)                                         \
  UNROLL for (int e = 0; e < EACH(turned, side); ++e) {                                                       \
    if (turned != 0) {                                                                                        \
      held[2 * e] = LOAD_WORD(name, WORD_AT(first[e] + (k_at) * ((rows) >> 3), last));                        \
      held[2 * e + 1] = LOAD_WORD(name, WORD_AT(first[e] + ((k_at) + 1) * ((rows) >> 3), last));              \
    } else {                                                                                                  \
      held[e] = LOAD_WORD(name, WORD_AT(first[e] + ((k_at) >> 3), last));                                     \
    }                                                                                                         \
  }
#define FETCH_NARROW(held, turned, side, name, base, r0, rows, k_at)                                          \
  UNROLL for (int e = 0; e < EACH(turned, side); ++e) {                                                       \
    ivec2 mesh_place = place_of(e, turned, side);                                                             \
    if (turned != 0) {                                                                                        \
      FETCH(held[2 * e], name, base, (k_at) + mesh_place.y, k_last, (r0) + mesh_place.x, rows, rows)          \
      FETCH(held[2 * e + 1], name, base, (k_at) + mesh_place.y + 1, k_last, (r0) + mesh_place.x, rows, rows)  \
    } else {                                                                                                  \
      FETCH(held[e], name, base, (r0) + mesh_place.x, rows, (k_at) + mesh_place.y, k_last, k)                 \
    }                                                                                                         \
  }
#define OR_ZERO(word, step) (WHOLE_STEPS != 0 || (step) < k_last ? word : uvec4(0u))
// Where that load goes in the tile, once for all steps: the word, and the pair within it.
#define PUT_WORD(e, turned, side, at, ROW_OF) \
  ((at) + ROW_OF(place_of(e, turned, side).x) + QUOTIENT(place_of(e, turned, side).y, 8))
#define PUT_PAIR(e, turned, side) REST(QUOTIENT(place_of(e, turned, side).y, 2), 4)
#define WRITE_TILE(held, word, pair, turned, side, k0)                                                        \
  UNROLL for (int e = 0; e < EACH(turned, side); ++e) {                                                       \
    ivec2 mesh_place = place_of(e, turned, side);                                                             \
    if (IS_OWN(e, turned, side, mesh_place.x)) {                                                              \
      if (turned != 0) {                                                                                      \
        uvec4 mesh_first = OR_ZERO(held[2 * e], (k0) + mesh_place.y);                                         \
        uvec4 mesh_second = OR_ZERO(held[2 * e + 1], (k0) + mesh_place.y + 1);                                \
        WRITE_TURNED(tiles, IN_BUFFER(word[e]), WORDS, pair[e], mesh_first, mesh_second)                                 \
      } else {                                                                                                \
        tiles[IN_BUFFER(word[e])] = OR_ZERO(held[e], (k0) + mesh_place.y);                                               \
      }                                                                                                       \
    }                                                                                                         \
  }
#if WIDE_A
#define FETCH_A(k_at) FETCH_WIDE(next_a, first_a, LAST_WORD(base_a, m), TURN_A, BM, a, m, k_at)
#else
#define FETCH_A(k_at) FETCH_NARROW(next_a, TURN_A, BM, a, base_a, m0, m, k_at)
#endif
#if WIDE_B
#define FETCH_B(k_at) FETCH_WIDE(next_b, first_b, LAST_WORD(base_b, n), TURN_B, BN, b, n, k_at)
#else
#define FETCH_B(k_at) FETCH_NARROW(next_b, TURN_B, BN, b, base_b, n0, n, k_at)
#endif

// Steps from k_last on are zeros; rows beyond M and N are not written to C.
#define WRITE_TILES                                                                                           \
  WRITE_TILE(next_a, word_a, pair_a, TURN_A, BM, k0)                                                          \
  WRITE_TILE(next_b, word_b, pair_b, TURN_B, BN, k0)
#define FETCH_NEXT                                                                                            \
  k_next = WHOLE_STEPS != 0 ? IMIN(k0 + BK, k - BK) : k0 + BK;                                                \
  FETCH_A(k_next)                                                                                             \
  FETCH_B(k_next)

// Row r of a subgroup's matrices.
#define FINISH_STRIP(r)                                                                                       \
  {                                                                                                           \
    subgroupBarrier();                                                                                        \
    UNROLL for (int s = 0; s < MATRICES_N; ++s)                                                               \
      coopMatStoreNV(sums[(r) * MATRICES_N + s], tiles, strip + s * MATRIX_N / 4, STRIP_STRIDE, false);       \
    subgroupBarrier();                                                                                        \
    UNROLL_STRIP for (int q = 0; q < STRIP_ITEMS; q += LANES_OF_SUBGROUP) {                                   \
      int place = QUOTIENT(q + lane, MATRICES_N * MATRIX_N / 8);                                              \
      int word = REST(q + lane, MATRICES_N * MATRIX_N / 8) * 2;                                               \
      int row = m0 + m_own + (r) * MATRIX_M + place;                                                          \
      int column = n0 + n_own + word * 4;                                                                     \
      uvec4 left = tiles[strip + place * STRIP_STRIDE + word];                                                \
      uvec4 right = tiles[strip + place * STRIP_STRIDE + word + 1];                                           \
      if (row < m_last && column < n && (STRIP_ITEMS % LANES_OF_SUBGROUP == 0 || q + lane < STRIP_ITEMS))          \
        FINISH_EIGHT(left, right, column, (matrix * m + row) * n + column)                                    \
    }                                                                                                         \
  }
#if defined(ROLLED) && (MATRICES_M == 3 || MATRICES_M > 4)
#error ROLLED has strips of 1, 2 or 4 rows of matrices.
#endif

// Where the matrices of a subgroup begin in the tile.
#define M_OF(subgroup) (QUOTIENT(subgroup, SUBGROUPS_N) * MATRICES_M * MATRIX_M)
#define N_OF(subgroup) (REST(subgroup, SUBGROUPS_N) * MATRICES_N * MATRIX_N)

KERNEL_BEGIN
  int n0 = GROUP_ID(0) * BN;
  OWN_ROWS(BM, GROUP_ID(1))
  OWN_K_RANGE(BK)
  OWN_STEPS
  int own = int(gl_SubgroupID);
  int lane = int(gl_SubgroupInvocationID);
  int m_own = M_OF(own);
  int n_own = N_OF(own);
  int base_a = BASE_A;
  int base_b = BASE_B;
#if WIDE_A
  int first_a[EACH(TURN_A, BM)];
  UNROLL for (int e = 0; e < EACH(TURN_A, BM); ++e) first_a[e] = FIRST_WORD(e, TURN_A, BM, base_a, m0, m);
#endif
#if WIDE_B
  int first_b[EACH(TURN_B, BN)];
  UNROLL for (int e = 0; e < EACH(TURN_B, BN); ++e) first_b[e] = FIRST_WORD(e, TURN_B, BN, base_b, n0, n);
#endif
  int word_a[EACH(TURN_A, BM)], pair_a[EACH(TURN_A, BM)];
  int word_b[EACH(TURN_B, BN)], pair_b[EACH(TURN_B, BN)];
  UNROLL for (int e = 0; e < EACH(TURN_A, BM); ++e) {
    word_a[e] = PUT_WORD(e, TURN_A, BM, 0, ROW_OF_A);
    pair_a[e] = PUT_PAIR(e, TURN_A, BM);
  }
  UNROLL for (int e = 0; e < EACH(TURN_B, BN); ++e) {
    word_b[e] = PUT_WORD(e, TURN_B, BN, TILE_A, ROW_OF_B);
    pair_b[e] = PUT_PAIR(e, TURN_B, BN);
  }
  uvec4 next_a[HELD(TURN_A, BM)];
  uvec4 next_b[HELD(TURN_B, BN)];
  MatrixSum sums[MATRICES_M * MATRICES_N];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N; ++e) sums[e] = FIRST_SUM;
  // Behind the last step the last one is loaded again: a branch around the loads would wait for them.
  int k_next = IMIN(k_first, k - (WHOLE_STEPS != 0 ? BK : 1));
  FETCH_A(k_next)
  FETCH_B(k_next)
#ifdef BEHIND_LOOP
  KEEP_GROUP(gl_LocalInvocationIndex == 0)
#endif
#ifdef ROLLED
  int turn = 0;
  int k0 = k_first;
  WRITE_TILES
  BARRIER();
  while (k0 < k_last) {
    FETCH_NEXT
    MatrixA x[MATRICES_M];
    UNROLL for (int i = 0; i < MATRICES_M; ++i)
      coopMatLoadNV(x[i], tiles, turn + ROW_OF_A(m_own) + i * MATRIX_A, ROW_STRIDE(WORDS), false);
    UNROLL for (int s = 0; s < MATRICES_N; ++s) {
      MatrixB y;
      coopMatLoadNV(y, tiles, turn + TILE_A + ROW_OF_B(n_own) + s * MATRIX_B, ROW_STRIDE(WORDS), true);
      UNROLL for (int r = 0; r < MATRICES_M; ++r)
        sums[r * MATRICES_N + s] = coopMatMulAddNV(x[r], y, sums[r * MATRICES_N + s]);
    }
    // Into the other tile, and within the iteration: ANV holds what an iteration leaves to the next for all of the loop.
    turn = TILE_A + TILE_B - turn;
    k0 += BK;
    WRITE_TILES
    BARRIER();
  }
#else
  for (int k0 = k_first; k0 < k_last; k0 += BK) {
    BARRIER();
    WRITE_TILES
    BARRIER();
    FETCH_NEXT
    UNROLL for (int j = 0; j < BK; j += MATRIX_K) {
      // Keeps the loads of a step behind the products of the one before, whose registers they take.
      if (j > 0) subgroupBarrier();
      MatrixA x[MATRICES_M];
      MatrixB y[MATRICES_N];
      UNROLL for (int i = 0; i < MATRICES_M; ++i)
        coopMatLoadNV(x[i], tiles, ROW_OF_A(m_own) + i * MATRIX_A + j / 8, ROW_STRIDE(WORDS), false);
      UNROLL for (int i = 0; i < MATRICES_N; ++i)
        coopMatLoadNV(y[i], tiles, TILE_A + ROW_OF_B(n_own) + i * MATRIX_B + j / 8, ROW_STRIDE(WORDS), true);
      UNROLL for (int r = 0; r < MATRICES_M; ++r)
        UNROLL for (int s = 0; s < MATRICES_N; ++s) sums[r * MATRICES_N + s] = coopMatMulAddNV(x[r], y[s], sums[r * MATRICES_N + s]);
    }
  }
#endif
  // Which invocation holds which element is the driver's secret: sums go through workgroup memory, a strip at a time.
  BARRIER();
  int strip = own * MATRIX_M * STRIP_STRIDE;
#ifdef BEHIND_LOOP
  READ_GROUP
  m_own = M_OF(BEHIND_LOOP(own));
  n_own = N_OF(BEHIND_LOOP(own));
#endif
#ifdef ROLLED
  FINISH_STRIP(0)
#if MATRICES_M > 1
  FINISH_STRIP(1)
#endif
#if MATRICES_M > 2
  FINISH_STRIP(2)
  FINISH_STRIP(3)
#endif
#else
  UNROLL for (int r = 0; r < MATRICES_M; ++r) FINISH_STRIP(r)
#endif
KERNEL_END
