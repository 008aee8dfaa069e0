// At most 16 rows of A for OpenCL on a CPU: one invocation has STRIP columns of B and reads each element once, as it lies, in
// vectors of VW (8 or 16). KC of K at a time, A's rows lie in private memory as f32: the core's first cache.
// TRANS_B: BLOCK rows of A times COLUMNS columns are sums in registers, added across the vector at the end of each KC.
// Else: the strip's sums lie in private memory, and VECTORS vectors of them take the products of RUN rows of B at each visit.
#include "matmul_bindings.inc"
#define CONSTANTS(X) X(0, int, m) X(1, int, n) X(2, int, k) X(3, int, flags) X(4, int, k_begin) X(5, int, k_end)
#include "matmul_epilogue.inc"
#if VW == 16
#define V(name) name##16
#else
#define V(name) name##8
#endif
typedef V(float) vf;

#if AB_TYPE == 1
static inline vf wide(__global const ushort *from) { return V(as_float)(V(convert_uint)(V(vload)(0, from)) << 16); }
#elif AB_TYPE == 2
static inline vf wide(__global const ushort *from) { return V(vload_half)(0, (__global const half *)from); }
#else
static inline vf wide(__global const float *from) { return V(vload)(0, from); }
#endif
static inline float total(vf x) {
#if VW == 16
  float8 y = x.lo + x.hi;
#else
  float8 y = x;
#endif
  float4 z = y.lo + y.hi;
  return (z.x + z.z) + (z.y + z.w);
}

KERNEL_BEGIN
  const int n0 = GROUP_ID(0) * STRIP, batch = GROUP_ID(2), width = IMIN(STRIP, n - n0);
  a += batch * ROWS * k;
  b += batch * k * n;
  float left[ROWS * KC] __attribute__((aligned(64)));
  vf strip[ROWS * STRIP / VW];
  float *const sums = (float *)strip;
#if TRANS_B
#define LEFT_AT(r, j) ((r) * KC + (j))
#else
#define LEFT_AT(r, j) ((j) * ROWS + (r))
#endif
  for (int k0 = k_begin; k0 < k_end; k0 += KC) {
    const int depth = IMIN(KC, k_end - k0);
    const bool first = k0 == k_begin;
    for (int r = 0; r < ROWS; ++r) {
#if TRANS_A
      for (int j = 0; j < depth; ++j) left[LEFT_AT(r, j)] = FACTOR_OF(a[(k0 + j) * ROWS + r]);
#else
      int j = 0;
#if TRANS_B
      for (; j + VW <= depth; j += VW) V(vstore)(wide(a + r * k + k0 + j), 0, left + r * KC + j);
#endif
      for (; j < depth; ++j) left[LEFT_AT(r, j)] = FACTOR_OF(a[r * k + k0 + j]);
#endif
    }
#if TRANS_B
    for (int s = 0; s < width; s += COLUMNS) {
      // Columns past the end repeat the last and are not stored.
      int at[COLUMNS];
      UNROLL for (int i = 0; i < COLUMNS; ++i) at[i] = (n0 + IMIN(s + i, width - 1)) * k + k0;
      for (int r0 = 0; r0 < ROWS; r0 += BLOCK) {
        vf acc[BLOCK * COLUMNS];
        UNROLL for (int e = 0; e < BLOCK * COLUMNS; ++e) acc[e] = (vf)(0.0f);
        const float *row[BLOCK];
        UNROLL for (int r = 0; r < BLOCK; ++r) row[r] = left + IMIN(r0 + r, ROWS - 1) * KC;
        int j = 0;
        for (; j + VW <= depth; j += VW) {
          vf y[COLUMNS];
          UNROLL for (int i = 0; i < COLUMNS; ++i) y[i] = wide(b + at[i] + j);
          UNROLL for (int r = 0; r < BLOCK; ++r) {
            const vf x = V(vload)(0, row[r] + j);
            UNROLL for (int i = 0; i < COLUMNS; ++i) acc[r * COLUMNS + i] = MAD(x, y[i], acc[r * COLUMNS + i]);
          }
        }
        float done[BLOCK * COLUMNS];
        UNROLL for (int e = 0; e < BLOCK * COLUMNS; ++e) done[e] = total(acc[e]);
        const int rows = IMIN(BLOCK, ROWS - r0), columns = IMIN(COLUMNS, width - s);
        for (int r = 0; r < rows; ++r)
          for (int i = 0; i < columns; ++i) {
            float sum = done[r * COLUMNS + i];
            for (int e = j; e < depth; ++e) sum = MAD(left[(r0 + r) * KC + e], FACTOR_OF(b[at[i] + e]), sum);
            const int to = (r0 + r) * STRIP + s + i;
            sums[to] = first ? sum : sums[to] + sum;
          }
      }
    }
#else
    if (first)
      for (int e = 0; e < ROWS * STRIP / VW; ++e) strip[e] = (vf)(0.0f);
    // A vector may go past the row's end, where other columns' sums are not stored, but not past B's.
    const int end = (NUM_GROUPS(2) - batch) * k * n;
#define VISIT(count, vectors)                                                                                     \
  {                                                                                                               \
    vf y[count * vectors];                                                                                        \
    UNROLL for (int u = 0; u < count; ++u) UNROLL for (int w = 0; w < vectors; ++w)                               \
      y[u * vectors + w] = wide(b + (k0 + j + u) * n + n0 + (v + w) * VW);                                        \
    for (int r = 0; r < ROWS; ++r) {                                                                              \
      vf sum[vectors];                                                                                            \
      UNROLL for (int w = 0; w < vectors; ++w) sum[w] = strip[r * (STRIP / VW) + v + w];                          \
      UNROLL for (int u = 0; u < count; ++u) {                                                                    \
        const vf x = (vf)(left[LEFT_AT(r, j + u)]);                                                                  \
        UNROLL for (int w = 0; w < vectors; ++w) sum[w] = MAD(x, y[u * vectors + w], sum[w]);                     \
      }                                                                                                           \
      UNROLL for (int w = 0; w < vectors; ++w) strip[r * (STRIP / VW) + v + w] = sum[w];                          \
    }                                                                                                             \
  }
#define ADD(count)                                                                                                \
  {                                                                                                               \
    const int rest = end - ((k0 + j + count - 1) * n + n0 + width);                                               \
    const int whole = ((width + VW - 1) / VW * VW - width <= rest ? width + VW - 1 : width) / VW;                 \
    int v = 0;                                                                                                    \
    for (; v + VECTORS <= whole; v += VECTORS) VISIT(count, VECTORS)                                              \
    for (; v < whole; ++v) VISIT(count, 1)                                                                        \
    for (int s = whole * VW; s < width; ++s)                                                                      \
      for (int u = 0; u < count; ++u) {                                                                           \
        const float y = FACTOR_OF(b[(k0 + j + u) * n + n0 + s]);                                                     \
        for (int r = 0; r < ROWS; ++r) sums[r * STRIP + s] = MAD(left[LEFT_AT(r, j + u)], y, sums[r * STRIP + s]);   \
      }                                                                                                           \
  }
    int j = 0;
    for (; j + RUN <= depth; j += RUN) ADD(RUN)
    for (; j < depth; ++j) ADD(1)
#endif
  }
  for (int r = 0; r < ROWS; ++r)
    for (int s = 0; s < width; ++s) FINISH(sums[r * STRIP + s], n0 + s, (batch * ROWS + r) * n + n0 + s)
KERNEL_END
