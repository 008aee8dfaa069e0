// flash_attention_delta.simt for 16-bit floats.
#include "halves.inc"
#include "low_precision.inc"
#define BINDINGS(X) X(0, R, uint16_t, o) X(1, R, uint16_t, dout) X(2, W, float, delta)
#define CONSTANTS(X) X(0, int, count) X(1, int, s_len) X(2, int, heads) X(3, int, width)
#if BF16
#define VALUE(h) value_of_bf16(uint(h))
#else
#define VALUE(h) value_of_f16(uint(h))
#endif

KERNEL_BEGIN
  FOR_EACH(i, count) {
    int position = i % s_len;
    int head = (i / s_len) % heads;
    int batch = i / s_len / heads;
    int row = ((batch * s_len + position) * heads + head) * width;
    float sum = 0.0f;
    for (int d = 0; d < width; ++d) sum = MAD(VALUE(LOAD(o, row + d)), VALUE(LOAD(dout, row + d)), sum);
    STORE(delta, i, sum);
  }
KERNEL_END
