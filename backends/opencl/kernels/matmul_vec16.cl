// For OpenCL on a CPU: one invocation computes `rows` x 16 elements of C. It packs 16 columns of op(B), KC deep, into
// private memory (the core's first cache) and runs register blocks of TM rows over them; no workgroup memory, no barrier.
// TRANS_A, TRANS_B: A is (K, M), B is (N, K). rows <= MC.
#define BINDINGS(X) X(0, R, float, a) X(1, R, float, b) X(2, R, float, bias) X(3, R, float, residual) X(4, W, float, c) \
  X(5, R, float, before)
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, rows) \
  X(5, int, k_begin) X(6, int, k_end)
#include "matmul_epilogue.inc"

#define ZIP_LOW(x, y) (float8)(x.s0, y.s0, x.s1, y.s1, x.s4, y.s4, x.s5, y.s5)
#define ZIP_HIGH(x, y) (float8)(x.s2, y.s2, x.s3, y.s3, x.s6, y.s6, x.s7, y.s7)
#define PAIR_LOW(x, y) (float8)(x.s01, y.s01, x.s45, y.s45)
#define PAIR_HIGH(x, y) (float8)(x.s23, y.s23, x.s67, y.s67)

// Transposes the 8 x 8 matrix whose rows are x[0..7].
static inline void transpose8(float8 *x) {
  const float8 a0 = ZIP_LOW(x[0], x[1]), a1 = ZIP_HIGH(x[0], x[1]), a2 = ZIP_LOW(x[2], x[3]), a3 = ZIP_HIGH(x[2], x[3]);
  const float8 a4 = ZIP_LOW(x[4], x[5]), a5 = ZIP_HIGH(x[4], x[5]), a6 = ZIP_LOW(x[6], x[7]), a7 = ZIP_HIGH(x[6], x[7]);
  const float8 b0 = PAIR_LOW(a0, a2), b1 = PAIR_HIGH(a0, a2), b2 = PAIR_LOW(a1, a3), b3 = PAIR_HIGH(a1, a3);
  const float8 b4 = PAIR_LOW(a4, a6), b5 = PAIR_HIGH(a4, a6), b6 = PAIR_LOW(a5, a7), b7 = PAIR_HIGH(a5, a7);
  x[0] = (float8)(b0.lo, b4.lo);
  x[1] = (float8)(b1.lo, b5.lo);
  x[2] = (float8)(b2.lo, b6.lo);
  x[3] = (float8)(b3.lo, b7.lo);
  x[4] = (float8)(b0.hi, b4.hi);
  x[5] = (float8)(b1.hi, b5.hi);
  x[6] = (float8)(b2.hi, b6.hi);
  x[7] = (float8)(b3.hi, b7.hi);
}

// panel[j] = op(B)[k0 + j][n0 .. n0 + 15], zeros beyond `width` columns.
static inline void pack(float16 *panel, __global const float *b, int n, int k, int k0, int depth, int n0, int width) {
  int j = 0;
#if TRANS_B
  if (width == 16) {
    __global const float *from = b + n0 * k + k0;
    for (; j + 8 <= depth; j += 8) {
      float8 low[8], high[8];
      UNROLL for (int i = 0; i < 8; ++i) low[i] = vload8(0, from + i * k + j);
      UNROLL for (int i = 0; i < 8; ++i) high[i] = vload8(0, from + (i + 8) * k + j);
      transpose8(low);
      transpose8(high);
      UNROLL for (int i = 0; i < 8; ++i) panel[j + i] = (float16)(low[i], high[i]);
    }
  }
  for (; j < depth; ++j) {
    float *to = (float *)&panel[j];
    for (int i = 0; i < 16; ++i) to[i] = i < width ? b[(n0 + i) * k + k0 + j] : 0.0f;
  }
#else
  if (width == 16)
    for (; j < depth; ++j) panel[j] = vload16(0, b + (k0 + j) * n + n0);
  for (; j < depth; ++j) {
    float *to = (float *)&panel[j];
    for (int i = 0; i < 16; ++i) to[i] = i < width ? b[(k0 + j) * n + n0 + i] : 0.0f;
  }
#endif
}

KERNEL_BEGIN
  const int n0 = GROUP_ID(0) * 16, m0 = GROUP_ID(1) * rows, batch = GROUP_ID(2);
  const int width = IMIN(16, n - n0), end = IMIN(m0 + rows, m);
  a += batch * m * k;
  b += batch * k * n;
  c += batch * m * n;
  before += (flags & 16) != 0 ? batch * m * n : 0;
  residual += (flags & 2) != 0 ? batch * m * n : 0;
  const bool plain = width == 16 && (flags & 19) == 0 && ACTIVATION == 0;
  float16 panel[KC], sums[MC];
  for (int k0 = k_begin; k0 < k_end; k0 += KC) {
    const int depth = IMIN(KC, k_end - k0);
    const bool first = k0 == k_begin, last = k0 + KC >= k_end;
    pack(panel, b, n, k, k0, depth, n0, width);
    for (int row = m0; row < end; row += TM) {
      float16 acc[TM];
      UNROLL for (int r = 0; r < TM; ++r) acc[r] = first ? (float16)(0.0f) : sums[row - m0 + r];
      __global const float *from[TM];
#if TRANS_A
      UNROLL for (int r = 0; r < TM; ++r) from[r] = a + k0 * m + IMIN(row + r, m - 1);
      const int step = m;
#else
      UNROLL for (int r = 0; r < TM; ++r) from[r] = a + IMIN(row + r, m - 1) * k + k0;
      const int step = 1;
#endif
      for (int j = 0; j < depth; ++j) {
        const float16 y = panel[j];
        UNROLL for (int r = 0; r < TM; ++r) acc[r] = MAD((float16)(from[r][j * step]), y, acc[r]);
      }
      if (!last) {
        UNROLL for (int r = 0; r < TM; ++r) sums[row - m0 + r] = acc[r];
      } else {
        UNROLL for (int r = 0; r < TM; ++r) {
          if (row + r < end) {
            const int at = (row + r) * n + n0;
            if (plain) {
              vstore16(acc[r], 0, c + at);
            } else {
              float x[16];
              vstore16(acc[r], 0, x);
              for (int i = 0; i < width; ++i) FINISH(x[i], n0 + i, at + i)
            }
          }
        }
      }
    }
  }
KERNEL_END
