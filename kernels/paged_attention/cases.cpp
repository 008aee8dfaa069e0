#include <algorithm>
#include <cmath>
#include <vector>

#include "hal/math.h"
#include "kernels/core/rng.h"
#include "kernels/paged_attention/parts.h"

namespace meshloom::kernels::paged_attention_parts {
namespace {

struct Spec {
  std::string name;
  std::int64_t n = 1, r = 1, m = 1, page = 16, h = 1, kv = 1, d = 16, dv = 0;  // dv 0 = d
  std::int64_t pages = 0;  // of the pools; 0 = a few more than tables name
  double scale = 0, soft_cap = 0;
  std::int64_t left = kUnlimited;
  bool sink = false, slopes = false, slow = false;
  DType q = DType::f32, pool = DType::f32;
  std::int64_t block = 32;  // of a pool of u8
  bool ring = false;
  bool in_keys = false;  // values_in_keys
};

Case make(const Spec& s) {
  const std::int64_t dv = s.dv ? s.dv : s.d, pages = s.pages ? s.pages : s.r * s.m + 3;
  const bool four_bits = s.pool == DType::u8, scaled = four_bits || s.pool == DType::i8;
  const auto stored = [&](std::int64_t features) { return four_bits ? nf4::row_bytes(features) : features; };
  Case result{s.name, {{s.q, {s.n, s.h, s.d}}, {s.pool, {pages, s.page, s.kv, stored(s.d)}}}, {}, s.slow};
  if (!s.in_keys) result.inputs.push_back({s.pool, {pages, s.page, s.kv, stored(dv)}});
  result.inputs.insert(result.inputs.end(),
                       {{DType::i32, {s.r, s.m}}, {DType::i32, {s.r + 1}}, {DType::i32, {s.r}}});
  result.attrs.set("scale", s.scale != 0 ? s.scale : 1 / std::sqrt(static_cast<double>(s.d)));
  if (s.left < kUnlimited) result.attrs.set("left", s.left);
  if (s.soft_cap > 0) result.attrs.set("soft_cap", s.soft_cap);
  if (s.ring) result.attrs.set("ring", true);
  if (scaled) {
    result.attrs.set("scaled", true);
    const auto scales_of = [&](std::int64_t features) {
      result.inputs.push_back(
          {DType::f32, {pages, s.page, s.kv, four_bits ? nf4::blocks(features, s.block) : 1}});
    };
    scales_of(s.d);
    if (!s.in_keys) scales_of(dv);
  }
  if (s.in_keys) result.attrs.set("values_in_keys", true);
  if (four_bits) result.attrs.set("block", s.block);
  if (four_bits || s.in_keys) result.attrs.set("value_dim", dv);
  const auto take = [&](bool wanted, const char* flag) {
    if (!wanted) return;
    result.attrs.set(flag, true);
    result.inputs.push_back({DType::f32, {s.h}});
  };
  take(s.sink, "sink");
  take(s.slopes, "slopes");
  return result;
}

constexpr DType kBf16 = DType::bf16, kF16 = DType::f16, kF32 = DType::f32, kInt8 = DType::i8,
                kNf4 = DType::u8;

std::vector<Spec> specs() {
  return {
      {.name = "one"},
      {.name = "decode", .n = 3, .r = 3, .m = 9, .h = 4, .kv = 1, .d = 64},
      {.name = "decode-one", .m = 13, .h = 9, .kv = 3, .d = 64},
      {.name = "chunk", .n = 37, .m = 8, .h = 3, .kv = 1, .d = 64},
      {.name = "mixed", .n = 45, .r = 5, .m = 12, .h = 6, .kv = 2, .d = 64},
      {.name = "mixed-odd-page", .n = 29, .r = 4, .m = 31, .page = 5, .h = 3, .kv = 3, .d = 32},
      {.name = "page-of-one", .n = 11, .r = 2, .m = 67, .page = 1, .h = 2, .kv = 1, .d = 24},
      {.name = "page-64", .n = 40, .r = 3, .m = 3, .page = 64, .h = 4, .kv = 2, .d = 80},
      {.name = "page-256", .n = 21, .r = 4, .m = 2, .page = 256, .h = 4, .kv = 1, .d = 128},
      {.name = "many-empty", .n = 3, .r = 9, .m = 5, .h = 2, .kv = 2, .d = 64},
      {.name = "tail-d", .n = 23, .r = 3, .m = 6, .h = 4, .kv = 1, .d = 20},
      {.name = "odd-d", .n = 17, .r = 2, .m = 8, .page = 7, .h = 3, .kv = 1, .d = 19},
      {.name = "wide-values", .n = 19, .r = 3, .m = 7, .h = 4, .kv = 2, .d = 24, .dv = 40},
      {.name = "narrow-values", .n = 19, .r = 2, .m = 7, .h = 8, .kv = 1, .d = 96, .dv = 20},
      {.name = "group-8", .n = 9, .r = 4, .m = 11, .h = 16, .kv = 2, .d = 64},
      {.name = "group-8-bf16", .n = 9, .r = 4, .m = 11, .h = 16, .kv = 2, .d = 64, .pool = kBf16},
      {.name = "d256", .n = 5, .r = 2, .m = 6, .h = 2, .kv = 1, .d = 256},
      {.name = "window", .n = 33, .r = 3, .m = 9, .h = 4, .kv = 2, .d = 32, .left = 15},
      {.name = "window-one", .n = 12, .r = 2, .m = 5, .h = 2, .kv = 1, .d = 16, .left = 0},
      {.name = "window-long", .n = 8, .r = 4, .m = 20, .h = 3, .kv = 1, .d = 64, .left = 100},
      {.name = "shared-pages", .n = 14, .r = 4, .m = 6, .h = 2, .kv = 1, .d = 32, .pages = 7},
      {.name = "soft-cap", .n = 15, .r = 2, .m = 6, .h = 2, .kv = 1, .d = 40, .scale = 2.0, .soft_cap = 3.5},
      {.name = "sink", .n = 15, .r = 3, .m = 5, .h = 3, .kv = 1, .d = 24, .sink = true},
      {.name = "slopes", .n = 22, .r = 3, .m = 7, .h = 4, .kv = 4, .d = 32, .slopes = true},
      {.name = "everything",
       .n = 31,
       .r = 4,
       .m = 15,
       .page = 9,
       .h = 6,
       .kv = 2,
       .d = 40,
       .dv = 24,
       .soft_cap = 5,
       .left = 50,
       .sink = true,
       .slopes = true,
       .pool = kF16},
      {.name = "bf16-pool", .n = 41, .r = 4, .m = 9, .h = 3, .kv = 1, .d = 64, .pool = kBf16},
      {.name = "f16-pool", .n = 7, .r = 4, .m = 9, .h = 9, .kv = 3, .d = 64, .pool = kF16},
      {.name = "f16-pool-tail", .n = 26, .r = 3, .m = 9, .page = 5, .h = 2, .kv = 1, .d = 19, .pool = kF16},
      {.name = "bf16-query", .n = 12, .r = 3, .m = 6, .h = 4, .kv = 1, .d = 64, .q = kBf16},
      {.name = "f16-query-bf16-pool",
       .n = 12,
       .r = 3,
       .m = 6,
       .h = 4,
       .kv = 2,
       .d = 80,
       .q = kF16,
       .pool = kBf16},
      {.name = "int8", .n = 41, .r = 4, .m = 9, .h = 3, .kv = 1, .d = 64, .pool = kInt8},
      {.name = "int8-tail",
       .n = 26,
       .r = 3,
       .m = 9,
       .page = 5,
       .h = 4,
       .kv = 2,
       .d = 19,
       .dv = 23,
       .pool = kInt8},
      {.name = "int8-bf16-query",
       .n = 9,
       .r = 4,
       .m = 11,
       .h = 6,
       .kv = 2,
       .d = 64,
       .q = kBf16,
       .pool = kInt8},
      {.name = "int8-everything",
       .n = 31,
       .r = 4,
       .m = 15,
       .page = 9,
       .h = 6,
       .kv = 2,
       .d = 40,
       .dv = 24,
       .soft_cap = 5,
       .left = 50,
       .sink = true,
       .slopes = true,
       .pool = kInt8},
      {.name = "nf4", .n = 41, .r = 4, .m = 9, .h = 3, .kv = 1, .d = 64, .pool = kNf4},
      {.name = "nf4-tail",
       .n = 26,
       .r = 3,
       .m = 9,
       .page = 5,
       .h = 4,
       .kv = 2,
       .d = 19,
       .dv = 43,
       .pool = kNf4},
      {.name = "nf4-f16-query",
       .n = 9,
       .r = 4,
       .m = 11,
       .h = 6,
       .kv = 2,
       .d = 80,
       .q = kF16,
       .pool = kNf4,
       .block = 64},
      {.name = "nf4-everything",
       .n = 31,
       .r = 4,
       .m = 15,
       .page = 9,
       .h = 6,
       .kv = 2,
       .d = 40,
       .dv = 24,
       .soft_cap = 5,
       .left = 50,
       .sink = true,
       .slopes = true,
       .pool = kNf4,
       .block = 8},
      {.name = "ring",
       .n = 33,
       .r = 3,
       .m = 1,
       .page = 48,
       .h = 4,
       .kv = 2,
       .d = 32,
       .left = 15,
       .ring = true},
      {.name = "ring-full",
       .n = 12,
       .r = 2,
       .m = 1,
       .page = 20,
       .h = 2,
       .kv = 1,
       .d = 64,
       .left = 19,
       .ring = true},
      {.name = "ring-of-pages",
       .n = 27,
       .r = 4,
       .m = 5,
       .page = 7,
       .h = 3,
       .kv = 1,
       .d = 24,
       .left = 9,
       .ring = true},
      {.name = "ring-int8",
       .n = 33,
       .r = 3,
       .m = 1,
       .page = 90,
       .h = 4,
       .kv = 2,
       .d = 64,
       .left = 70,
       .sink = true,
       .pool = kInt8,
       .ring = true},
      {.name = "latent", .n = 33, .r = 4, .m = 9, .h = 6, .kv = 1, .d = 48, .dv = 32, .in_keys = true},
      {.name = "latent-all", .n = 12, .r = 3, .m = 6, .h = 4, .kv = 2, .d = 40, .in_keys = true},
      {.name = "latent-tail",
       .n = 26,
       .r = 3,
       .m = 9,
       .page = 5,
       .h = 4,
       .kv = 1,
       .d = 27,
       .dv = 19,
       .in_keys = true},
      {.name = "latent-bf16-f16-query",
       .n = 17,
       .r = 3,
       .m = 9,
       .h = 8,
       .kv = 1,
       .d = 80,
       .dv = 64,
       .q = kF16,
       .pool = kBf16,
       .in_keys = true},
      {.name = "latent-int8",
       .n = 31,
       .r = 4,
       .m = 15,
       .page = 9,
       .h = 6,
       .kv = 2,
       .d = 40,
       .dv = 24,
       .soft_cap = 5,
       .left = 50,
       .sink = true,
       .slopes = true,
       .pool = kInt8,
       .in_keys = true},
      {.name = "latent-nf4",
       .n = 31,
       .r = 4,
       .m = 15,
       .page = 9,
       .h = 6,
       .kv = 1,
       .d = 43,
       .dv = 24,
       .left = 50,
       .sink = true,
       .pool = kNf4,
       .block = 16,
       .in_keys = true},
      {.name = "latent-ring",
       .n = 27,
       .r = 4,
       .m = 5,
       .page = 7,
       .h = 3,
       .kv = 1,
       .d = 24,
       .dv = 16,
       .left = 9,
       .ring = true,
       .in_keys = true},
      {.name = "latent-576", .n = 5, .r = 3, .m = 6, .h = 16, .kv = 1, .d = 576, .dv = 512, .in_keys = true},
      {.name = "latent-576-bf16",
       .n = 3,
       .r = 3,
       .m = 6,
       .h = 16,
       .kv = 1,
       .d = 576,
       .dv = 512,
       .pool = kBf16,
       .in_keys = true},
      {.name = "decode-2048", .m = 128, .h = 9, .kv = 3, .d = 64, .slow = true},
      {.name = "decode-2048-bf16", .m = 128, .h = 9, .kv = 3, .d = 64, .slow = true, .pool = kBf16},
      {.name = "decode-2048-int8", .m = 128, .h = 9, .kv = 3, .d = 64, .slow = true, .pool = kInt8},
      {.name = "decode-2048-nf4", .m = 128, .h = 9, .kv = 3, .d = 64, .slow = true, .pool = kNf4},
      {.name = "decode-2048-latent",
       .m = 128,
       .h = 16,
       .kv = 1,
       .d = 576,
       .dv = 512,
       .slow = true,
       .in_keys = true},
      {.name = "decode-2048-latent-apart", .m = 128, .h = 16, .kv = 1, .d = 576, .dv = 512, .slow = true},
      {.name = "decode-2048-latent-heads", .m = 128, .h = 16, .kv = 16, .d = 192, .dv = 128, .slow = true},
      {.name = "decode-2048-llama-1b", .m = 128, .h = 32, .kv = 8, .d = 64, .slow = true},
      {.name = "decode-2048-llama-1b-bf16", .m = 128, .h = 32, .kv = 8, .d = 64, .slow = true, .pool = kBf16},
      {.name = "decode-16x2048", .n = 16, .r = 16, .m = 128, .h = 9, .kv = 3, .d = 64, .slow = true},
      {.name = "chunk-512", .n = 512, .m = 32, .h = 9, .kv = 3, .d = 64, .slow = true},
      {.name = "chunk-512-llama-1b", .n = 512, .m = 32, .h = 32, .kv = 8, .d = 64, .slow = true},
      {.name = "chunk-512-of-2048", .n = 512, .m = 128, .h = 32, .kv = 8, .d = 64, .slow = true},
      {.name = "chunk-512-of-2048-bf16",
       .n = 512,
       .m = 128,
       .h = 32,
       .kv = 8,
       .d = 64,
       .slow = true,
       .pool = kBf16},
  };
}

// Head dimensions and dtypes, which GPU kernels are compiled for, by the upper half of the seed.
Spec random_spec(const CaseSeed& seed) {
  Rng kind(seed.seed >> 32);
  Spec s{.name = "random"};
  s.d = kind.of({16, 19, 20, 32, 64, 64, 80, 128});
  if (kind.flip(0.15)) s.dv = kind.of({16, 20, 64});
  if (kind.flip(0.2)) {
    s.in_keys = true;
    s.dv = kind.flip(0.2) ? s.d : kind.of({8, 16, 16, 19});
    s.dv = std::min(s.dv, s.d);
  }
  const auto dtype = [&] {
    const std::int64_t drawn = kind.integer(0, 4);
    return drawn == 0 ? kBf16 : drawn == 1 ? kF16 : kF32;
  };
  s.q = dtype(), s.pool = dtype();
  if (kind.flip(0.4)) {
    s.pool = kind.flip() ? kInt8 : kNf4;
    s.block = kind.of({8, 32, 64});
  }
  const std::int64_t group = kind.of({1, 2, 3, 4, 8});
  Rng rng(seed);
  s.kv = rng.integer(1, 3), s.h = s.kv * group;
  s.r = rng.integer(1, 6), s.n = rng.flip(0.3) ? s.r : rng.extent(70);
  s.page = rng.of({1, 5, 16, 16, 64, 256});
  s.m = rng.integer(1, hal::ceil_div(300, s.page));
  s.pages = rng.flip(0.2) ? rng.integer(1, s.r * s.m) : 0;
  if (rng.flip(0.3)) s.left = rng.extent(90) - 1;
  if (s.left < s.m * s.page && rng.flip(0.4)) s.ring = true;
  if (rng.flip(0.2)) s.scale = rng.uniform(0.05, 0.6);
  if (rng.flip(0.2)) s.soft_cap = rng.uniform(1, 40);
  s.sink = rng.flip(0.25), s.slopes = rng.flip(0.25);
  return s;
}

// Where the queries of each sequence begin, and how many keys it has.
struct Layout {
  std::vector<std::int32_t> query_starts, lengths;
};

// Long tables are full and their queries divided evenly, so that a benchmark's rates mean something.
Layout make_layout(const PagedAttentionDims& d, std::uint64_t seed) {
  constexpr std::int64_t kLong = 480;
  Rng rng(mix(seed, 90));
  // Those of rings end in their third round, at most.
  const std::int64_t most = d.ring ? 3 * d.capacity() - 1 : d.capacity();
  const bool full = most >= kLong && d.n % d.r == 0 && most >= d.n / d.r;
  const bool even = full || (d.n % d.r == 0 && rng.flip(0.3));
  Layout result;
  for (std::int64_t r = 0; r <= d.r; ++r)
    result.query_starts.push_back(static_cast<std::int32_t>(even ? r * (d.n / d.r) : rng.integer(0, d.n)));
  std::sort(result.query_starts.begin(), result.query_starts.end());
  // Most often there is no padding in front.
  if (rng.flip(0.8)) result.query_starts.front() = 0;
  if (rng.flip(0.3)) result.query_starts.back() = static_cast<std::int32_t>(d.n);
  for (std::int64_t r = 0; r < d.r; ++r) {
    const auto at = static_cast<std::size_t>(r);
    const std::int64_t queries = result.query_starts[at + 1] - result.query_starts[at];
    // Now and then more queries than keys, the first of which stand before them all.
    const std::int64_t least = rng.flip(0.9) ? std::min(queries, most) : 0;
    std::int64_t length = full ? most : rng.integer(least, most);
    // Where pages end, or beside it.
    if (!full && rng.flip(0.4))
      length = std::clamp(hal::ceil_div(length, d.page) * d.page + rng.integer(-1, 1), least, most);
    result.lengths.push_back(static_cast<std::int32_t>(length));
  }
  return result;
}

// Pages in shuffled order; what no query may look at is nonsense.
void make_table(const PagedAttentionDims& d, std::uint64_t seed, const TensorView& into) {
  const Layout layout = make_layout(d, seed);
  Rng rng(mix(seed, 91));
  std::vector<std::int32_t> pages(static_cast<std::size_t>(d.p));
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pages[i] = static_cast<std::int32_t>(i);
    std::swap(pages[i], pages[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(i)))]);
  }
  auto* table = into.as<std::int32_t>();
  for (std::int64_t r = 0; r < d.r; ++r) {
    const std::int64_t used =
        std::min(d.m, hal::ceil_div(layout.lengths[static_cast<std::size_t>(r)], d.page));
    for (std::int64_t at = 0; at < d.m; ++at)
      table[r * d.m + at] = at < used ? pages[static_cast<std::size_t>((r * d.m + at) % d.p)]
                            : at % 3  ? -1
                                      : INT32_MAX;
  }
}

}  // namespace

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(make(spec));
  return result;
}

Case random_case(const CaseSeed& seed) { return make(random_spec(seed)); }

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  const PagedAttentionDims d = paged_attention_dims(call);
  if (index == d.sink) return fill_uniform(into, mix(seed, 92), -2, 2);
  if (index == d.slopes) return fill_uniform(into, mix(seed, 93), 0, 0.5);
  if (index == d.page_table) return make_table(d, seed, into);
  const std::uint64_t own = mix(seed, static_cast<std::uint64_t>(index));
  // Such that values are of size 1.
  if (index == d.k_scales || index == d.v_scales) {
    const double most = d.pool == DType::i8 ? 1.0 / 127 : 1;
    return fill_uniform(into, own, 0.1 * most, most);
  }
  if (index != PagedAttentionDims::kQ && index < d.page_table && d.k_scales >= 0) {
    for (std::int64_t i = 0; i < into.type.elements(); ++i) {
      const std::uint64_t drawn = mix(own, static_cast<std::uint64_t>(i));
      into.data[i] = d.pool == DType::i8
                         ? static_cast<std::byte>(static_cast<std::int64_t>(drawn % 255) - 127)
                         : static_cast<std::byte>(drawn);
    }
    return;
  }
  if (index < d.page_table) return fill_uniform(into, own, -1, 1);
  const Layout layout = make_layout(d, seed);
  const auto& from = index == d.lengths ? layout.lengths : layout.query_starts;
  std::copy(from.begin(), from.end(), into.as<std::int32_t>());
}

}  // namespace meshloom::kernels::paged_attention_parts
