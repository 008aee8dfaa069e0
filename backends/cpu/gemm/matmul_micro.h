// The register-blocked inner loop that every tiled kernel of the CPU is built from.
//
// B is always read in column panels of micro_tile().columns floats: element (k, j) of panel p at
// data[p * panel + k * row + j]. A is read by element (k-step by k-step, a broadcast each), so any strides
// do. Each element of C is one chain of multiply-adds over k in order: its bits depend on nothing else.
//
// Where the processor multiplies bf16 numbers itself, A and B may be bf16 pairs instead: a pair is a 32-bit word
// of two bf16 numbers that are neighbours along k (the layout called VNNI by oneDNN). A pair takes the place of a
// float, and k counts pairs. Pairs are multiplied by the matrix unit (AMX), which reads rows of A along k, or
// lane by lane (AVX512_BF16).
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

// Rows x columns of C held in registers; both divide 96 on every instruction set.
struct MicroTile {
  std::int64_t rows, columns;
};
MicroTile micro_tile();

// True where the f32 loop multiplies two panels of B at a time, by half as many rows of A, for a B with `columns`
// columns.
bool uses_two_panels(std::int64_t columns);

enum class OperandType : std::uint8_t { f32, bf16_pairs };
// True where the inner loop multiplies bf16 pairs on this processor, and where it does so on the matrix unit.
bool supports_bf16_pairs();
bool bf16_pairs_on_amx();
// Where supported, runs `rounds` rounds of independent products of bf16 pairs in registers; returns the FLOPs done.
double run_bf16_loop(std::int64_t rounds);

// Element (i, k) at data[i / micro_tile().rows * strip + i % micro_tile().rows * row + k * col].
struct AView {
  const float* data;
  std::int64_t row, col, strip;
};
struct BView {
  const float* data;
  std::int64_t row, panel;
};

// C (m, n) = A B, or C += A B, as the inner loop takes it.
struct GemmCall {
  std::int64_t m, n, k;
  AView a;
  BView b;
  // null, or, for f32 only, the unpacked B, which is packed into b (whose rows and panels are dense).
  const float* unpacked;
  std::int64_t unpacked_row;
  float* c;
  std::int64_t c_stride;
  bool accumulate;
};

// C (m, n) = A B, or C += A B. Reads whole panels of B (its columns beyond n may hold anything), writes only
// (m, n). k >= 1.
void micro_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, float* c,
                std::int64_t c_stride, bool accumulate, OperandType operand_type = OperandType::f32);

// As micro_gemm, for a B whose rows of n floats are `b_row` apart: packs B into `into` (aligned, room for
// k * round_up(n, columns) floats) while multiplying. With `keep`, the packed B is returned for further calls;
// without, every panel overwrites the one before, so that they stay in cache.
BView micro_gemm_packing(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const float* b,
                         std::int64_t b_row, bool keep, float* into, float* c, std::int64_t c_stride,
                         bool accumulate);

// The smallest stride of at least `floats` floats that is an odd number of cache lines: rows with this stride do
// not compete for one set of a cache.
std::int64_t padded_stride(std::int64_t floats);

// An unpacked m x k block of A: element (i, k) at data[i * row + k * col].
AView plain_a(const float* data, std::int64_t row, std::int64_t col);
// An unpacked B whose rows hold at least round_up(n, columns) floats and are `row` apart.
BView plain_b(const float* data, std::int64_t row);

// Copies an m x k block of A into the layout that the inner loop reads fastest: k-major strips of rows where
// row == 1, else rows. `into` holds packed_a_floats(m, k) floats.
AView pack_a(const float* data, std::int64_t row, std::int64_t col, std::int64_t m, std::int64_t k,
             float* into);
std::int64_t packed_a_floats(std::int64_t m, std::int64_t k);
// Packs B (k, n), element (k, j) at data[k * row + j * col], into panels padded with zeros; `into` holds
// k * round_up(n, columns) floats.
BView pack_b(const float* data, std::int64_t row, std::int64_t col, std::int64_t k, std::int64_t n,
             float* into);

// Combines k rows of bf16 numbers, `stride` apart, into ceil(k / 2) rows of `columns` pairs; an odd last row is
// paired with zeros.
void interleave_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
                      float* into);
// The same pairs as panels, as pack_b makes them: ceil(k / 2) * round_up(n, columns) words.
BView pack_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t n, float* into);
// The same pairs transposed: `columns` rows along k, `into_stride` words from one to the next.
void transpose_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
                     float* into, std::int64_t into_stride);

// into[j * into_stride + i] = from[i * from_stride + j] for i < rows, j < columns.
void transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* into, std::int64_t into_stride);

}  // namespace meshloom::backends::cpu
