// The register-blocked inner loop that every tiled kernel of the CPU is built from.
//
// B is always read in column panels of micro_tile().columns floats: element (k, j) of panel p at
// data[p * panel + k * row + j]. A is read by element (k-step by k-step, a broadcast each), so any strides
// do. Each element of C is one chain of multiply-adds over k in order: its bits depend on nothing else.
//
// Where the processor multiplies bf16 numbers itself, A and B may be words of two instead, neighbours along
// k: a word stands where a float would, packing moves it as one, and k counts words. They are multiplied by
// its matrix unit (AMX), whose A lies along k, or lane by lane (AVX512_BF16).
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

// Rows x columns of C held in registers; both divide 96 on every instruction set.
struct MicroTile {
  std::int64_t rows, columns;
};
MicroTile micro_tile();

// Of f32: does B of so many columns go through the registers two panels at a time, by half as many rows of A?
bool takes_panels_in_pairs(std::int64_t columns);

enum class Factors : std::uint8_t { f32, bf16_pairs };
// Can the inner loop multiply pairs of bf16 numbers here?
bool multiplies_bf16_pairs();
// On the matrix unit?
bool bf16_pairs_in_tiles();
// Where it can: runs `rounds` of independent ones in registers; returns the FLOPs done.
double spin_bf16_pairs(std::int64_t rounds);

// Element (i, k) at data[i / micro_tile().rows * strip + i % micro_tile().rows * row + k * col].
struct AView {
  const float* data;
  std::int64_t row, col, strip;
};
struct BView {
  const float* data;
  std::int64_t row, panel;
};

// C (m, n) = A B, or C += A B. Reads whole panels of B (its columns beyond n may hold anything), writes only
// (m, n). k >= 1.
void micro_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, float* c,
                std::int64_t c_stride, bool accumulate, Factors factors = Factors::f32);

// The same for a B whose rows of n floats lie `b_row` apart; packs it on the way into `into` (aligned). With
// `keep`, `into` is returned for further calls; else it is overwritten panel by panel, which stay near. Room
// for k * round_up(n, columns) floats.
BView micro_gemm_packing(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const float* b,
                         std::int64_t b_row, bool keep, float* into, float* c, std::int64_t c_stride,
                         bool accumulate);

// The least row of at least `floats` floats that spans an odd number of cache lines: rows so far apart never
// crowd into one set of a cache.
std::int64_t spread_row(std::int64_t floats);

// An m x k block of A, unpacked: element (i, k) at data[i * row + k * col].
AView plain_a(const float* data, std::int64_t row, std::int64_t col);
// Rows of at least round_up(n, columns) floats.
BView plain_b(const float* data, std::int64_t row);

// Copies an m x k block of A to where the inner loop reads it best: strips of rows, k-major, where the rows
// of A lie side by side; else rows as they are. `into` holds packed_a_floats(m, k).
AView pack_a(const float* data, std::int64_t row, std::int64_t col, std::int64_t m, std::int64_t k,
             float* into);
std::int64_t packed_a_floats(std::int64_t m, std::int64_t k);
// Packs B (k, n), element (k, j) at data[k * row + j * col], into panels padded with zeros: k * round_up(n,
// columns).
BView pack_b(const float* data, std::int64_t row, std::int64_t col, std::int64_t k, std::int64_t n,
             float* into);

// k rows of bf16 numbers, `stride` apart, as rows of `columns` words: a word for every two rows, zeros under
// the last of an odd number.
void pair_rows(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
               float* into);
// The same as panels, like pack_b's: ceil(k / 2) * round_up(n, columns) words.
BView pack_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t n, float* into);
// The same turned: `columns` rows along k, `apart` words from one to the next.
void turn_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
                float* into, std::int64_t apart);

// into[j * into_stride + i] = from[i * from_stride + j] for i < rows, j < columns.
void transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* into, std::int64_t into_stride);

}  // namespace meshloom::backends::cpu
