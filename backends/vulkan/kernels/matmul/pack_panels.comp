// Rows of k 4-byte elements, row r's element j at r * row_step + j * step, to panels of PANEL rows: (batch, panel, k,
// PANEL), the last row repeated. A workgroup takes a panel and `share` steps of k; its lanes lie along k, so that they
// wait for their cache lines together.
#define BINDINGS(X) X(0, R, uint, x) X(1, W, uint, y)
#define CONSTANTS(X) X(0, int, rows) X(1, int, k) X(2, int, row_step) X(3, int, step) X(4, int, share)

KERNEL_BEGIN
  int first = GROUP_ID(1) * PANEL;
  int from = GROUP_ID(2) * rows * k;
  int to = (GROUP_ID(2) * NUM_GROUPS(1) + GROUP_ID(1)) * k * PANEL;
  int end = IMIN((GROUP_ID(0) + 1) * share, k);
  for (int j = GROUP_ID(0) * share + LOCAL_ID(0); j < end; j += WG_X)
    for (int row = 0; row < PANEL; ++row)
      STORE(y, to + j * PANEL + row, LOAD(x, from + j * step + IMIN(first + row, rows - 1) * row_step));
KERNEL_END
