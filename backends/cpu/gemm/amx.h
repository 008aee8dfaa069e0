// Matrix products on Intel AMX: tiles of 16 rows of 64 bytes, two tiles of A by two of B at a time. Source: Intel
// 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS and TDPBUSD.
//
// Operands are 32-bit words of neighbours along k: two bf16 numbers (a pair), summed in f32, or four bytes, A's
// unsigned and B's signed, summed in i32. Every element is summed over blocks of 16 words in order, so its bits
// depend on k alone. Subnormal bf16 operands and results count as zero.
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

enum class AmxProduct : std::uint8_t { bf16_pairs, u8s8 };

// True where the processor has the instruction and the system lets this process use it. The environment variable
// MESHLOOM_AMX=0 turns it off.
bool has_amx(AmxProduct product);

constexpr std::int64_t kAmxPanelColumns = 32;  // columns of a panel of B
constexpr std::int64_t kAmxStripRows = 32;     // rows of A that are multiplied at a time
constexpr std::int64_t kAmxTileWords = 16;     // words of k in a tile

// Word (i, k) of A at a[i * a_row + k]; word (k, j) of B at b[j / 32 * b_panel + k * b_row + j % 32]; sum (i,
// j) of C at c[i * c_row + j]. Whole panels of B are read.
struct AmxOperands {
  const void* a;
  std::int64_t a_row;
  const void* b;
  std::int64_t b_row, b_panel;
  void* c;
  std::int64_t c_row;
};

// C (m, n) = A B, or C += A B, over k words; m, n, k >= 1. Only (m, n) of C is written.
void amx_gemm(AmxProduct product, std::int64_t m, std::int64_t n, std::int64_t k, const AmxOperands& operands,
              bool accumulate);

// While one exists, this thread's tile configuration is kept from one product to the next: loading a configuration
// takes as long as a small product.
class AmxScope {
 public:
  AmxScope();
  ~AmxScope();
  AmxScope(const AmxScope&) = delete;
  AmxScope& operator=(const AmxScope&) = delete;
};

// Runs `rounds` rounds of independent products of bf16 pairs in registers; returns the FLOPs done.
double run_amx_loop(std::int64_t rounds);

}  // namespace meshloom::backends::cpu
