// Copies rows of k 4-byte elements to rows that are `stride` elements apart; a workgroup per row.
#define BINDINGS(X) X(0, R, uint, x) X(1, W, uint, y)
#define CONSTANTS(X) X(0, int, rows) X(1, int, k) X(2, int, stride)

KERNEL_BEGIN
  for (int row = GROUP_ID(1); row < rows; row += NUM_GROUPS(1))
    for (int column = LOCAL_ID(0); column < k; column += WG_X) STORE(y, row * stride + column, LOAD(x, row * k + column));
KERNEL_END
