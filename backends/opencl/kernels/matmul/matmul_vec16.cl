// For OpenCL on a CPU: one invocation computes `rows` x 16 VECTORS PANELS elements of C. It packs 16 VECTORS
// columns of op(B), KC deep, into private memory (the core's first cache) and runs register blocks of TM rows
// over them, panel by panel, so that a block of A serves them all from the second cache; no workgroup memory,
// no barrier. TRANS_A, TRANS_B: A is (K, M), B is (N, K). a_row: floats from one row of A, as it lies, to the
// next. rows <= MC.
#define BINDINGS(X) X(0, R, float, a) X(1, R, float, b) X(2, R, float, bias) X(3, R, float, residual) X(4, W, float, c) \
  X(5, R, float, before)
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, rows) X(5, int, k_begin) \
  X(6, int, k_end) X(7, int, a_row)
#include "matmul_epilogue.inc"

#include "transpose8.inc"

// panel[j VECTORS] = op(B)[k0 + j][n0 .. n0 + 15], zeros beyond `width` columns.
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
      UNROLL for (int i = 0; i < 8; ++i) panel[(j + i) * VECTORS] = (float16)(low[i], high[i]);
    }
  }
  for (; j < depth; ++j) {
    float *to = (float *)&panel[j * VECTORS];
    for (int i = 0; i < 16; ++i) to[i] = i < width ? b[(n0 + i) * k + k0 + j] : 0.0f;
  }
#else
  if (width == 16)
    for (; j < depth; ++j) panel[j * VECTORS] = vload16(0, b + (k0 + j) * n + n0);
  for (; j < depth; ++j) {
    float *to = (float *)&panel[j * VECTORS];
    for (int i = 0; i < 16; ++i) to[i] = i < width ? b[(k0 + j) * n + n0 + i] : 0.0f;
  }
#endif
}

KERNEL_BEGIN
  const int left = GROUP_ID(0) * 16 * VECTORS * PANELS, m0 = GROUP_ID(1) * rows, batch = GROUP_ID(2);
  const int end = IMIN(m0 + rows, m);
  a += batch * (TRANS_A ? k : m) * a_row;
  b += batch * k * n;
  c += batch * m * n;
  before += (flags & 16) != 0 ? batch * m * n : 0;
  residual += (flags & 2) != 0 ? batch * m * n : 0;
  const bool plain = (flags & 19) == 0 && ACTIVATION == 0;
  float16 panel[KC * VECTORS], sums[PANELS * MC * VECTORS];
  for (int k0 = k_begin; k0 < k_end; k0 += KC) {
    const int depth = IMIN(KC, k_end - k0);
    const bool first = k0 == k_begin, last = k0 + KC >= k_end;
    for (int p = 0; p < PANELS; ++p) {
      const int n0 = left + p * 16 * VECTORS;
      if (n0 >= n) break;
      UNROLL for (int v = 0; v < VECTORS; ++v)
        pack(panel + v, b, n, k, k0, depth, n0 + 16 * v, IMIN(16, IMAX(0, n - n0 - 16 * v)));
      float16 *const held = sums + p * MC * VECTORS;
      for (int row = m0; row < end; row += TM) {
        float16 acc[TM * VECTORS];
        UNROLL for (int r = 0; r < TM * VECTORS; ++r)
          acc[r] = first ? (float16)(0.0f) : held[(row - m0) * VECTORS + r];
        __global const float *from[TM];
#if TRANS_A
        UNROLL for (int r = 0; r < TM; ++r) from[r] = a + k0 * a_row + IMIN(row + r, m - 1);
        const int step = a_row;
#else
        UNROLL for (int r = 0; r < TM; ++r) from[r] = a + IMIN(row + r, m - 1) * a_row + k0;
        const int step = 1;
#endif
        for (int j = 0; j < depth; ++j) {
          float16 y[VECTORS];
          UNROLL for (int v = 0; v < VECTORS; ++v) y[v] = panel[j * VECTORS + v];
          UNROLL for (int r = 0; r < TM; ++r) {
            const float16 x = (float16)(from[r][j * step]);
            UNROLL for (int v = 0; v < VECTORS; ++v) acc[r * VECTORS + v] = MAD(x, y[v], acc[r * VECTORS + v]);
          }
        }
        if (!last) {
          UNROLL for (int r = 0; r < TM * VECTORS; ++r) held[(row - m0) * VECTORS + r] = acc[r];
          continue;
        }
        UNROLL for (int r = 0; r < TM; ++r) {
          if (row + r < end) {
            UNROLL for (int v = 0; v < VECTORS; ++v) {
              const int column = n0 + 16 * v, width = IMIN(16, n - column), at = (row + r) * n + column;
              if (plain && width == 16) {
                vstore16(acc[r * VECTORS + v], 0, c + at);
              } else {
                float x[16];
                vstore16(acc[r * VECTORS + v], 0, x);
                for (int i = 0; i < width; ++i) FINISH(x[i], column + i, at + i)
              }
            }
          }
        }
      }
    }
  }
KERNEL_END
