// Matmul of 16-bit floats on NVIDIA's tensor cores (mma.inc). A workgroup of SUBGROUPS_M x SUBGROUPS_N warps, 32 neighbours
// each, computes BM x BN of C, a warp MATRICES_M x MATRICES_N matrices of 16 x 8. Tiles of A and B, BK deep, go through
// workgroup memory, which has room for two of each: while one is multiplied the next is on its way, first into registers.
// WIDE_A, WIDE_B: rows in device memory are multiples of eight elements.
//
// A tile is words of two neighbours along K, which is 32 deep. A sum may take its steps of K in any order that A and B share:
// lane t (of mma.inc) has words 4t to 4t + 3 of a row, of which the first two serve one product, the others the next. All
// traffic with workgroup memory is of 16 bytes, eight lanes at a time, which is every bank once:
//   where memory runs along K   row after row, 16 words each: a load is a lane's words of one row. Eight lanes read two
//                               neighbouring rows, and write as they read device memory, in order.
//   where it runs across K      pair of steps after pair of steps: a load is one word of four rows (of A, columns of B), so
//                               that lane g has rows 4g to 4g + 3 of every 32. Eight lanes read at four pairs (t) two
//                               neighbouring fours (g), and write, of eight neighbours, first every even four, then every
//                               odd one. PLACE makes these differ modulo 8, writes from 64 rows on.
#include "matmul_bindings.inc"
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end)
#include "matmul_epilogue.inc"
#include "mma.inc"

#define WARP_M (MATRICES_M * 16)
#define WARP_N (MATRICES_N * 8)
#define BM (SUBGROUPS_M * WARP_M)
#define BN (SUBGROUPS_N * WARP_N)
// Of 16 bytes.
#define WORDS_A (BM * BK / 8)
#define WORDS_B (BN * BK / 8)
// At the end 16 rows of each warp's sums stand in the tiles' place; the padding puts them into different banks.
#define PATCH_ROW (WARP_N + (TRANS_B ? 8 : 1))
#define PATCH_WORDS ((SUBGROUPS_M * SUBGROUPS_N * 16 * PATCH_ROW + 3) / 4)
#define TILE_WORDS (2 * (WORDS_A + WORDS_B))
#define SHARED(X) X(uint4, tiles, (TILE_WORDS > PATCH_WORDS ? TILE_WORDS : PATCH_WORDS)) MMA_SHARED(X)

// Which of a warp's rows (columns of B) lane g has as its r-th.
#define ACROSS(along_k, r, g) ((along_k) ? 8 * (r) + (g) : (r) / 4 * 32 + 4 * (g) + (r) % 4)
// Where the words of pair p are for rows 4 * four and on, in a tile of `rows`.
#define PLACE(rows, p, four) ((p) * ((rows) / 4) + ((four) ^ ((p) / 4 % 4 * 2) ^ ((four) / 8 % 2)))

// Eight elements of a row, 0 beyond `rows` and `columns`.
FN uint4 eight(__global const ushort *from, int row, int rows, int column, int columns, int stride, bool wide) {
  uint4 word = (uint4)(0u);
  if (row < rows && column < columns) {
    from += row * stride + column;
    if (wide) {
      word = *(__global const uint4 *)from;
    } else {
      uint x[8];
      UNROLL for (int i = 0; i < 8; ++i) x[i] = column + i < columns ? from[i] : 0u;
      word = (uint4)(x[0] | x[1] << 16, x[2] | x[3] << 16, x[4] | x[5] << 16, x[6] | x[7] << 16);
    }
  }
  return word;
}

// What this invocation carries of a tile's `rows` from `first` on: from device memory, and into the tile.
#define ITEMS(size) (((size) + WG_X - 1) / WG_X)
#define EACH(e, at, size) \
  UNROLL for (int e = 0, at = LOCAL_ID(0); e < ITEMS(size); ++e, at += WG_X) if (at < (size))
#define FETCH_ALONG(next, from, wide, rows, first, end, k_at, stride) \
  EACH(e, at, (rows) * BK / 8) next[e] = eight(from, (first) + at / 4, end, (k_at) + at % 4 * 8, k_last, stride, wide);
#define PUT_ALONG(tile, next, rows) EACH(e, at, (rows) * BK / 8)(tile)[at] = next[e];
#define FETCH_ACROSS(next, from, wide, rows, first, end, k_at, stride)         \
  EACH(e, at, (rows) * BK / 16) {                                              \
    int row = (k_at) + at / ((rows) / 8) * 2;                                  \
    int column = (first) + at % ((rows) / 8) * 8;                              \
    next[2 * e] = eight(from, row, k_last, column, end, stride, wide);         \
    next[2 * e + 1] = eight(from, row + 1, k_last, column, end, stride, wide); \
  }
#define PUT_ACROSS(tile, next, rows)                                                 \
  EACH(e, at, (rows) * BK / 16) {                                                    \
    int p = at / ((rows) / 8);                                                       \
    int four = at % ((rows) / 8) * 2;                                                \
    (tile)[PLACE(rows, p, four)] = pairs_of(next[2 * e].lo, next[2 * e + 1].lo);     \
    (tile)[PLACE(rows, p, four + 1)] = pairs_of(next[2 * e].hi, next[2 * e + 1].hi); \
  }
// Words of two steps from two rows of four elements.
FN uint4 pairs_of(uint2 x, uint2 y) {
  return (uint4)((x.x & 0xffffu) | y.x << 16, x.x >> 16 | (y.x & 0xffff0000u), (x.y & 0xffffu) | y.y << 16,
                 x.y >> 16 | (y.y & 0xffff0000u));
}

// Four words along K of each of the lane's rows 4q to 4q + 3, of those from `own` on: x[4 * row + word].
FN void take(uint *x, __local const uint4 *tile, bool along_k, int rows, int own, int q, int lane) {
  int g = lane / 4;
  int t = lane % 4;
  if (along_k) {
    UNROLL for (int r = 0; r < 4; ++r) {
      uint4 word = tile[(own + ACROSS(true, 4 * q + r, g)) * 4 + t];
      x[4 * r] = word.x;
      x[4 * r + 1] = word.y;
      x[4 * r + 2] = word.z;
      x[4 * r + 3] = word.w;
    }
  } else {
    UNROLL for (int w = 0; w < 4; ++w) {
      uint4 word = tile[PLACE(rows, 4 * t + w, own / 4 + q * 8 + g)];
      x[w] = word.x;
      x[4 + w] = word.y;
      x[8 + w] = word.z;
      x[12 + w] = word.w;
    }
  }
}

#if TRANS_A
#define FETCH_A(k_at) FETCH_ACROSS(next_a, a, WIDE_A, BM, m0, m, k_at, m)
#define PUT_A(tile) PUT_ACROSS(tile, next_a, BM)
#else
#define FETCH_A(k_at) FETCH_ALONG(next_a, a, WIDE_A, BM, m0, m, k_at, k)
#define PUT_A(tile) PUT_ALONG(tile, next_a, BM)
#endif
#if TRANS_B
#define FETCH_B(k_at) FETCH_ALONG(next_b, b, WIDE_B, BN, n0, n, k_at, k)
#define PUT_B(tile) PUT_ALONG(tile, next_b, BN)
#else
#define FETCH_B(k_at) FETCH_ACROSS(next_b, b, WIDE_B, BN, n0, n, k_at, n)
#define PUT_B(tile) PUT_ACROSS(tile, next_b, BN)
#endif
#define FETCH(k_at) FETCH_A(k_at) FETCH_B(k_at)
#define PUT(stage) PUT_A(tiles + (stage) * (WORDS_A + WORDS_B)) PUT_B(tiles + (stage) * (WORDS_A + WORDS_B) + WORDS_A)

KERNEL_BEGIN
  const int n0 = GROUP_ID(0) * BN, m0 = GROUP_ID(1) * BM;
  const int lane = LOCAL_ID(0) % 32, warp = LOCAL_ID(0) / 32;
  const int m_own = warp / SUBGROUPS_N * WARP_M, n_own = warp % SUBGROUPS_N * WARP_N;
  OWN_K_RANGE(BK)
  a += batch * m * k;
  b += batch * k * n;
  uint4 next_a[2 * ITEMS(BM * BK / 16)], next_b[2 * ITEMS(BN * BK / 16)];
  float sums[MATRICES_M * MATRICES_N * 4];
  UNROLL for (int e = 0; e < MATRICES_M * MATRICES_N * 4; ++e) sums[e] = 0.0f;
  FETCH(k_first)
  PUT(0)
  BARRIER();
  int stage = 0;
  for (int k0 = k_first; k0 < k_last; k0 += BK) {
    const bool more = k0 + BK < k_last;
    if (more) {
      FETCH(k0 + BK)
    }
    __local const uint4 *tile_a = tiles + stage * (WORDS_A + WORDS_B), *tile_b = tile_a + WORDS_A;
    uint y[MATRICES_N * 4];
    UNROLL for (int q = 0; q < MATRICES_N / 4; ++q) take(y + 16 * q, tile_b, TRANS_B, BN, n_own, q, lane);
    UNROLL for (int q = 0; q < MATRICES_M / 2; ++q) {
      uint x[16];
      take(x, tile_a, !TRANS_A, BM, m_own, q, lane);
      // Two products along K, two matrices of A, all of B.
      UNROLL for (int e = 0; e < 4 * MATRICES_N; ++e) {
        const int j = e % MATRICES_N, i = e / MATRICES_N % 2, s = e / MATRICES_N / 2 * 2;
        MMA(sums + ((2 * q + i) * MATRICES_N + j) * 4, x[8 * i + s], x[8 * i + 4 + s], x[8 * i + s + 1], x[8 * i + 5 + s],
            y[4 * j + s], y[4 * j + s + 1])
      }
    }
    // Who still reads the other tiles has not passed the last barrier.
    stage ^= 1;
    if (more) {
      PUT(stage)
    }
    BARRIER();
  }
  // Neighbours in C are neighbouring lanes' work: whole lines are written.
  __local float *patch = (__local float *)tiles + warp * 16 * PATCH_ROW;
  UNROLL for (int i = 0; i < MATRICES_M; ++i) {
    BARRIER();
    UNROLL for (int j = 0; j < MATRICES_N; ++j) {
      UNROLL for (int e = 0; e < 4; ++e)
        patch[(e / 2 * 8 + lane / 4) * PATCH_ROW + ACROSS(TRANS_B, j, lane % 4 * 2 + e % 2)] =
            sums[(i * MATRICES_N + j) * 4 + e];
    }
    BARRIER();
    for (int e = lane; e < 16 * WARP_N; e += 32) {
      const int r = e / WARP_N;
      const int row = m0 + m_own + ACROSS(!TRANS_A, 2 * i + r / 8, r % 8);
      const int column = n0 + n_own + e % WARP_N;
      if (row < m && column < n) FINISH(patch[r * PATCH_ROW + e % WARP_N], column, (matrix * m + row) * n + column)
    }
  }
KERNEL_END
