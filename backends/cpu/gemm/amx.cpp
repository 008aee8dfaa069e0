#include "backends/cpu/gemm/amx.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define MESHLOOM_BUILD_AMX 1
#else
#define MESHLOOM_BUILD_AMX 0
#endif

namespace meshloom::backends::cpu {

#if MESHLOOM_BUILD_AMX
namespace {

// --- instructions, as assembly: with intrinsics, compilers would need them enabled for the whole program -----

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
template <AmxProduct PRODUCT, int SUM, int A, int B>
void multiply() {
  if constexpr (PRODUCT == AmxProduct::bf16_pairs)
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUM), "i"(A), "i"(B));
  else
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUM), "i"(A), "i"(B));
}

// --- blocks of C: tiles 0 to 3 hold sums, 4 and 5 are of A, 6 and 7 of B -----------------------------------

constexpr std::int64_t kTileRows = 16;                    // of a tile, and its columns
constexpr std::int64_t kPanelRow = 4 * kAmxPanelColumns;  // bytes

// The tile configuration for a strip of up to 32 rows.
Config config_of(std::int64_t rows) {
  Config config;
  const auto first = static_cast<std::uint8_t>(std::min(rows, kTileRows)),
             second = static_cast<std::uint8_t>(std::max<std::int64_t>(rows - kTileRows, 0));
  const std::uint8_t height[8] = {first, first, second, second, first, second, kTileRows, kTileRows};
  for (int tile = 0; tile < 8; ++tile)
    if (height[tile] > 0) config.rows[tile] = height[tile], config.bytes[tile] = 4 * kTileRows;
  return config;
}

// Rows of A or of B; the stride is in bytes.
struct Rows {
  const std::byte* data;
  std::int64_t stride;
};

// Tile loads wait for the caches one after another, so the next tiles of B are prefetched.
template <AmxProduct PRODUCT, bool TALL>
void step(const Rows& a, const Rows& b) {
  constexpr std::int64_t kLine = 64;
#pragma GCC unroll 16
  for (std::int64_t row = 0; row < kAmxTileWords; ++row)
    for (std::int64_t line = 0; line < kPanelRow; line += kLine)
      __builtin_prefetch(b.data + (kAmxTileWords + row) * b.stride + line);
  load<6>(b.data, b.stride);
  load<4>(a.data, a.stride);
  load<7>(b.data + 4 * kTileRows, b.stride);
  multiply<PRODUCT, 0, 4, 6>();
  multiply<PRODUCT, 1, 4, 7>();
  if constexpr (TALL) {
    load<5>(a.data + kTileRows * a.stride, a.stride);
    multiply<PRODUCT, 2, 5, 6>();
    multiply<PRODUCT, 3, 5, 7>();
  }
}

// The words of k beyond the last whole tile, padded with zeros.
struct Tail {
  alignas(64) std::array<std::int32_t, kAmxStripRows * kAmxTileWords> a;
  alignas(64) std::array<std::int32_t, kAmxTileWords * kAmxPanelColumns> b;
};

// Multiplies `tiles` tiles of k and then `tail`, which may be null.
template <AmxProduct PRODUCT, bool TALL>
void block(std::int64_t tiles, Rows a, Rows b, const Tail* tail, std::byte* c, std::int64_t c_stride,
           bool accumulate) {
  std::byte* const lower = c + kTileRows * c_stride;
  if (accumulate) {
    load<0>(c, c_stride);
    load<1>(c + 4 * kTileRows, c_stride);
    if constexpr (TALL) load<2>(lower, c_stride), load<3>(lower + 4 * kTileRows, c_stride);
  } else {
    zero<0>(), zero<1>();
    if constexpr (TALL) zero<2>(), zero<3>();
  }
  for (; tiles > 0; --tiles, a.data += 4 * kAmxTileWords, b.data += kAmxTileWords * b.stride)
    step<PRODUCT, TALL>(a, b);
  if (tail != nullptr)
    step<PRODUCT, TALL>({reinterpret_cast<const std::byte*>(tail->a.data()), 4 * kAmxTileWords},
                        {reinterpret_cast<const std::byte*>(tail->b.data()), kPanelRow});
  store<0>(c, c_stride);
  store<1>(c + 4 * kTileRows, c_stride);
  if constexpr (TALL) store<2>(lower, c_stride), store<3>(lower + 4 * kTileRows, c_stride);
}

thread_local std::int64_t configured_rows = 0;  // of the loaded configuration; 0: none is loaded
thread_local int open_scopes = 0;

void configure_rows(std::int64_t height) {
  if (height != configured_rows) configure(config_of(height));
  configured_rows = height;
}
void release_unless_scoped() {
  if (open_scopes > 0 || configured_rows == 0) return;
  release();
  configured_rows = 0;
}

// Multiplies m rows in strips of `height` rows.
template <AmxProduct PRODUCT, bool TALL>
void strips(std::int64_t height, std::int64_t m, std::int64_t n, std::int64_t k, const AmxOperands& o,
            bool accumulate) {
  const auto* const a = static_cast<const std::byte*>(o.a);
  const auto* const b = static_cast<const std::byte*>(o.b);
  auto* const c = static_cast<std::byte*>(o.c);
  const std::int64_t tiles = k / kAmxTileWords, left = k % kAmxTileWords;
  const std::int64_t a_stride = 4 * o.a_row, b_stride = 4 * o.b_row, c_stride = 4 * o.c_row;
  const auto copy_rows = [](std::int64_t rows, std::byte* to, std::int64_t to_stride, const std::byte* from,
                            std::int64_t from_stride, std::int64_t words) {
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<std::size_t>(4 * words));
  };
  Tail tail;
  alignas(64) std::array<std::byte, 4 * kAmxStripRows * kAmxPanelColumns> sums;
  if (left > 0) tail.a.fill(0), tail.b.fill(0);
  configure_rows(height);
  for (std::int64_t j = 0; j < n; j += kAmxPanelColumns) {
    const std::byte* panel = b + j / kAmxPanelColumns * o.b_panel * 4;
    const std::int64_t width = std::min(kAmxPanelColumns, n - j);
    const bool edge = width < kAmxPanelColumns;
    if (left > 0)
      copy_rows(left, reinterpret_cast<std::byte*>(tail.b.data()), kPanelRow,
                panel + tiles * kAmxTileWords * b_stride, b_stride, kAmxPanelColumns);
    for (std::int64_t i = 0; i < m; i += height) {
      const std::byte* strip = a + i * a_stride;
      std::byte* place = c + i * c_stride + 4 * j;
      if (left > 0)
        copy_rows(height, reinterpret_cast<std::byte*>(tail.a.data()), 4 * kAmxTileWords,
                  strip + tiles * 4 * kAmxTileWords, a_stride, left);
      if (edge && accumulate) copy_rows(height, sums.data(), kPanelRow, place, c_stride, width);
      block<PRODUCT, TALL>(tiles, {strip, a_stride}, {panel, b_stride}, left > 0 ? &tail : nullptr,
                           edge ? sums.data() : place, edge ? kPanelRow : c_stride, accumulate);
      if (edge) copy_rows(height, place, c_stride, sums.data(), kPanelRow, width);
    }
  }
}

template <AmxProduct PRODUCT>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, AmxOperands o, bool accumulate) {
  // As few configurations as possible: loading one takes as long as several products.
  const std::int64_t whole = m / kAmxStripRows * kAmxStripRows, rows = m - whole;
  if (whole > 0) strips<PRODUCT, true>(kAmxStripRows, whole, n, k, o, accumulate);
  o.a = static_cast<const std::byte*>(o.a) + 4 * whole * o.a_row;
  o.c = static_cast<std::byte*>(o.c) + 4 * whole * o.c_row;
  if (rows > 0)
    (rows > kTileRows ? strips<PRODUCT, true> : strips<PRODUCT, false>)(rows, rows, n, k, o, accumulate);
  release_unless_scoped();
}

// Linux enables the tile registers for a process, with all its threads, on request.
bool request_permission() {
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

struct Available {
  bool bf16 = false, i8 = false;
};
Available detect() {
  const char* setting = std::getenv("MESHLOOM_AMX");
  if (setting != nullptr && std::strcmp(setting, "0") == 0) return {};
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return {};
  const auto has = [&](int bit) { return (edx >> bit & 1u) != 0; };
  if (!has(24) || !request_permission()) return {};
  return {has(22), has(25)};
}

}  // namespace

bool has_amx(AmxProduct product) {
  static const Available available = detect();
  return product == AmxProduct::bf16_pairs ? available.bf16 : available.i8;
}

void amx_gemm(AmxProduct product, std::int64_t m, std::int64_t n, std::int64_t k, const AmxOperands& operands,
              bool accumulate) {
  (product == AmxProduct::bf16_pairs ? gemm<AmxProduct::bf16_pairs>
                                     : gemm<AmxProduct::u8s8>)(m, n, k, operands, accumulate);
}

AmxScope::AmxScope() { ++open_scopes; }
AmxScope::~AmxScope() {
  --open_scopes;
  release_unless_scoped();
}

double run_amx_loop(std::int64_t rounds) {
  configure_rows(kAmxStripRows);
  zero<4>(), zero<5>(), zero<6>(), zero<7>();
  for (std::int64_t round = 0; round < rounds; ++round) {
    multiply<AmxProduct::bf16_pairs, 0, 4, 6>();
    multiply<AmxProduct::bf16_pairs, 1, 4, 7>();
    multiply<AmxProduct::bf16_pairs, 2, 5, 6>();
    multiply<AmxProduct::bf16_pairs, 3, 5, 7>();
  }
  release_unless_scoped();
  return 4.0 * 2 * 2 * kTileRows * kTileRows * kAmxTileWords * static_cast<double>(rounds);
}
#else
bool has_amx(AmxProduct) { return false; }
void amx_gemm(AmxProduct, std::int64_t, std::int64_t, std::int64_t, const AmxOperands&, bool) {}
AmxScope::AmxScope() = default;
AmxScope::~AmxScope() = default;
double run_amx_loop(std::int64_t) { return 0; }
#endif

}  // namespace meshloom::backends::cpu
