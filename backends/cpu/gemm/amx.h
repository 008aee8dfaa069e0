// The processor's own matrix unit (Intel's AMX): tiles of 16 rows of 64 bytes, two of A by two of B at a
// time. What it computes: Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS and
// TDPBUSD.
//
// Operands are words of 32 bits, neighbours along k: two bf16 numbers, summed in f32, or four bytes, A's
// unsigned and B's signed, summed in i32. Every sum is made of blocks of 16 words, in order: its bits depend
// on nothing else. Subnormal bf16 numbers and results count as zero.
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

enum class TileProduct : std::uint8_t { bf16_pairs, byte_fours };

// Are there tiles for it, and does the system let this process use them? MESHLOOM_AMX=0 says no.
bool has_matrix_tiles(TileProduct product);

constexpr std::int64_t kTileColumns = 32;  // of a panel of B
constexpr std::int64_t kTileRows = 32;     // of A that a block of C takes at a time
constexpr std::int64_t kTileWords = 16;    // of k that a tile takes

// Word (i, k) of A at a[i * a_row + k]; word (k, j) of B at b[j / 32 * b_panel + k * b_row + j % 32]; sum (i,
// j) of C at c[i * c_row + j]. Whole panels of B are read.
struct TileOperands {
  const void* a;
  std::int64_t a_row;
  const void* b;
  std::int64_t b_row, b_panel;
  void* c;
  std::int64_t c_row;
};

// C (m, n) = A B, or C += A B, over k words; m, n, k >= 1. Only (m, n) of C is written.
void tile_gemm(TileProduct product, std::int64_t m, std::int64_t n, std::int64_t k,
               const TileOperands& operands, bool accumulate);

// While one lives, tiles stay cut on this thread from one product to the next: cutting them takes as long as
// a small one.
class TileScope {
 public:
  TileScope();
  ~TileScope();
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// Runs `rounds` of independent products of bf16 pairs in registers; returns the FLOPs done.
double spin_tiles(std::int64_t rounds);

}  // namespace meshloom::backends::cpu
