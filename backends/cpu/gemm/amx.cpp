#include "backends/cpu/gemm/amx.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define MESHLOOM_TILES 1
#else
#define MESHLOOM_TILES 0
#endif

namespace meshloom::backends::cpu {

#if MESHLOOM_TILES
namespace {

// --- instructions, written out: compilers would want them for the whole program
// -----------------------------

struct alignas(64) Config {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {};  // of a row
  std::uint8_t rows[16] = {};
};

void configure(const Config& config) { __asm__ volatile("ldtilecfg %0" ::"m"(config)); }
void release() { __asm__ volatile("tilerelease"); }

template <int T>
void zero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(T));
}
template <int T>
void load(const void* from, std::int64_t stride) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(T), "r"(from), "r"(stride) : "memory");
}
template <int T>
void store(void* to, std::int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(T), "r"(to), "r"(stride) : "memory");
}
template <TileProduct PRODUCT, int SUM, int A, int B>
void multiply() {
  if constexpr (PRODUCT == TileProduct::bf16_pairs)
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUM), "i"(A), "i"(B));
  else
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUM), "i"(A), "i"(B));
}

// --- blocks of C: tiles 0 to 3 are sums, 4 and 5 of A, 6 and 7 of B ----------------------------------------

constexpr std::int64_t kHalf = 16;                    // rows and columns of a tile
constexpr std::int64_t kPanelRow = 4 * kTileColumns;  // bytes

// A strip of up to 32 rows and how it is cut.
Config config_of(std::int64_t rows) {
  Config config;
  const auto first = static_cast<std::uint8_t>(std::min(rows, kHalf)),
             second = static_cast<std::uint8_t>(std::max<std::int64_t>(rows - kHalf, 0));
  const std::uint8_t height[8] = {first, first, second, second, first, second, kHalf, kHalf};
  for (int tile = 0; tile < 8; ++tile)
    if (height[tile] > 0) config.rows[tile] = height[tile], config.bytes[tile] = 4 * kHalf;
  return config;
}

// Rows of A and of B, with the bytes from one to the next.
struct Rows {
  const std::byte* data;
  std::int64_t stride;
};

// Loads of tiles wait for the caches one after another: what B needs next is asked for ahead.
template <TileProduct PRODUCT, bool TALL>
void step(const Rows& a, const Rows& b) {
  constexpr std::int64_t kLine = 64;
#pragma GCC unroll 16
  for (std::int64_t row = 0; row < kTileWords; ++row)
    for (std::int64_t line = 0; line < kPanelRow; line += kLine)
      __builtin_prefetch(b.data + (kTileWords + row) * b.stride + line);
  load<6>(b.data, b.stride);
  load<4>(a.data, a.stride);
  load<7>(b.data + 4 * kHalf, b.stride);
  multiply<PRODUCT, 0, 4, 6>();
  multiply<PRODUCT, 1, 4, 7>();
  if constexpr (TALL) {
    load<5>(a.data + kHalf * a.stride, a.stride);
    multiply<PRODUCT, 2, 5, 6>();
    multiply<PRODUCT, 3, 5, 7>();
  }
}

// The words of k behind the last whole tile, filled up with zeros.
struct Rest {
  alignas(64) std::array<std::int32_t, kTileRows * kTileWords> a;
  alignas(64) std::array<std::int32_t, kTileWords * kTileColumns> b;
};

// `tiles` of k, and the rest, which may be null.
template <TileProduct PRODUCT, bool TALL>
void block(std::int64_t tiles, Rows a, Rows b, const Rest* rest, std::byte* c, std::int64_t c_stride,
           bool accumulate) {
  std::byte* const lower = c + kHalf * c_stride;
  if (accumulate) {
    load<0>(c, c_stride);
    load<1>(c + 4 * kHalf, c_stride);
    if constexpr (TALL) load<2>(lower, c_stride), load<3>(lower + 4 * kHalf, c_stride);
  } else {
    zero<0>(), zero<1>();
    if constexpr (TALL) zero<2>(), zero<3>();
  }
  for (; tiles > 0; --tiles, a.data += 4 * kTileWords, b.data += kTileWords * b.stride)
    step<PRODUCT, TALL>(a, b);
  if (rest != nullptr)
    step<PRODUCT, TALL>({reinterpret_cast<const std::byte*>(rest->a.data()), 4 * kTileWords},
                        {reinterpret_cast<const std::byte*>(rest->b.data()), kPanelRow});
  store<0>(c, c_stride);
  store<1>(c + 4 * kHalf, c_stride);
  if constexpr (TALL) store<2>(lower, c_stride), store<3>(lower + 4 * kHalf, c_stride);
}

thread_local std::int64_t cut_height = 0;  // of strips; 0: tiles are not cut
thread_local int scopes = 0;

void cut(std::int64_t height) {
  if (height != cut_height) configure(config_of(height));
  cut_height = height;
}
void leave() {
  if (scopes > 0 || cut_height == 0) return;
  release();
  cut_height = 0;
}

// Rows of one height, at most a strip each.
template <TileProduct PRODUCT, bool TALL>
void strips(std::int64_t height, std::int64_t m, std::int64_t n, std::int64_t k, const TileOperands& o,
            bool accumulate) {
  const auto* const a = static_cast<const std::byte*>(o.a);
  const auto* const b = static_cast<const std::byte*>(o.b);
  auto* const c = static_cast<std::byte*>(o.c);
  const std::int64_t tiles = k / kTileWords, left = k % kTileWords;
  const std::int64_t a_stride = 4 * o.a_row, b_stride = 4 * o.b_row, c_stride = 4 * o.c_row;
  const auto copy_rows = [](std::int64_t rows, std::byte* to, std::int64_t to_stride, const std::byte* from,
                            std::int64_t from_stride, std::int64_t words) {
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<std::size_t>(4 * words));
  };
  Rest rest;
  alignas(64) std::array<std::byte, 4 * kTileRows * kTileColumns> sums;
  if (left > 0) rest.a.fill(0), rest.b.fill(0);
  cut(height);
  for (std::int64_t j = 0; j < n; j += kTileColumns) {
    const std::byte* panel = b + j / kTileColumns * o.b_panel * 4;
    const std::int64_t width = std::min(kTileColumns, n - j);
    const bool edge = width < kTileColumns;
    if (left > 0)
      copy_rows(left, reinterpret_cast<std::byte*>(rest.b.data()), kPanelRow,
                panel + tiles * kTileWords * b_stride, b_stride, kTileColumns);
    for (std::int64_t i = 0; i < m; i += height) {
      const std::byte* strip = a + i * a_stride;
      std::byte* place = c + i * c_stride + 4 * j;
      if (left > 0)
        copy_rows(height, reinterpret_cast<std::byte*>(rest.a.data()), 4 * kTileWords,
                  strip + tiles * 4 * kTileWords, a_stride, left);
      if (edge && accumulate) copy_rows(height, sums.data(), kPanelRow, place, c_stride, width);
      block<PRODUCT, TALL>(tiles, {strip, a_stride}, {panel, b_stride}, left > 0 ? &rest : nullptr,
                           edge ? sums.data() : place, edge ? kPanelRow : c_stride, accumulate);
      if (edge) copy_rows(height, place, c_stride, sums.data(), kPanelRow, width);
    }
  }
}

template <TileProduct PRODUCT>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, TileOperands o, bool accumulate) {
  // Tiles are cut anew as seldom as can be: it takes as long as several products.
  const std::int64_t whole = m / kTileRows * kTileRows, rows = m - whole;
  if (whole > 0) strips<PRODUCT, true>(kTileRows, whole, n, k, o, accumulate);
  o.a = static_cast<const std::byte*>(o.a) + 4 * whole * o.a_row;
  o.c = static_cast<std::byte*>(o.c) + 4 * whole * o.c_row;
  if (rows > 0)
    (rows > kHalf ? strips<PRODUCT, true> : strips<PRODUCT, false>)(rows, rows, n, k, o, accumulate);
  leave();
}

// Linux hands the tiles' registers to a process that asks for them; all its threads have them then.
bool ask_for_tiles() {
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

struct Available {
  bool bf16 = false, i8 = false;
};
Available find_tiles() {
  const char* wish = std::getenv("MESHLOOM_AMX");
  if (wish != nullptr && std::strcmp(wish, "0") == 0) return {};
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return {};
  const auto has = [&](int bit) { return (edx >> bit & 1u) != 0; };
  if (!has(24) || !ask_for_tiles()) return {};
  return {has(22), has(25)};
}

}  // namespace

bool has_matrix_tiles(TileProduct product) {
  static const Available available = find_tiles();
  return product == TileProduct::bf16_pairs ? available.bf16 : available.i8;
}

void tile_gemm(TileProduct product, std::int64_t m, std::int64_t n, std::int64_t k,
               const TileOperands& operands, bool accumulate) {
  (product == TileProduct::bf16_pairs ? gemm<TileProduct::bf16_pairs>
                                      : gemm<TileProduct::byte_fours>)(m, n, k, operands, accumulate);
}

TileScope::TileScope() { ++scopes; }
TileScope::~TileScope() {
  --scopes;
  leave();
}

double spin_tiles(std::int64_t rounds) {
  cut(kTileRows);
  zero<4>(), zero<5>(), zero<6>(), zero<7>();
  for (std::int64_t round = 0; round < rounds; ++round) {
    multiply<TileProduct::bf16_pairs, 0, 4, 6>();
    multiply<TileProduct::bf16_pairs, 1, 4, 7>();
    multiply<TileProduct::bf16_pairs, 2, 5, 6>();
    multiply<TileProduct::bf16_pairs, 3, 5, 7>();
  }
  leave();
  return 4.0 * 2 * 2 * kHalf * kHalf * kTileWords * static_cast<double>(rounds);
}
#else
bool has_matrix_tiles(TileProduct) { return false; }
void tile_gemm(TileProduct, std::int64_t, std::int64_t, std::int64_t, const TileOperands&, bool) {}
TileScope::TileScope() = default;
TileScope::~TileScope() = default;
double spin_tiles(std::int64_t) { return 0; }
#endif

}  // namespace meshloom::backends::cpu
