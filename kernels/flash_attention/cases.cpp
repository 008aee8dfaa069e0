#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "kernels/core/rng.h"
#include "kernels/flash_attention/parts.h"

namespace meshloom::kernels::flash_attention_parts {
namespace {

struct Spec {
  std::string name;
  std::int64_t b = 1, s = 1, t = 1, h = 1, kv = 1, d = 16;
  bool causal = true;
  double scale = 0;
  bool slow = false;
  std::int64_t dv = 0;                                 // 0 = d
  std::int64_t left = kUnlimited, right = kUnlimited;  // kUnlimited = none
  double soft_cap = 0;
  bool segments = false, prefix = false, query_offset = false, sink = false, slopes = false;
  double dropout = 0;
  // Whether there is one; what is more than 1 has its own for each: {batch rows, heads}.
  std::optional<std::array<bool, 2>> bias, attention_bitmask;
};

std::array<bool, 2> constexpr kShared{false, false}, kPerRow{true, false}, kPerHead{false, true},
    kOwn{true, true};

// The optional inputs and attributes go behind what the case has.
void extend(const Spec& s, Case& into) {
  const auto take = [&](bool wanted, const char* flag, std::initializer_list<TensorType> types) {
    if (!wanted) return;
    into.attrs.set(flag, true);
    into.inputs.insert(into.inputs.end(), types);
  };
  if (s.left < kUnlimited) into.attrs.set("left", s.left);
  if (s.right < kUnlimited) into.attrs.set("right", s.right);
  if (s.soft_cap > 0) into.attrs.set("soft_cap", s.soft_cap);
  take(s.segments, "segments", {{DType::i32, {s.b, s.s}}, {DType::i32, {s.b, s.t}}});
  take(s.prefix, "prefix", {{DType::i32, {s.b}}});
  take(s.query_offset, "query_offset", {{DType::i32, {s.b}}});
  take(s.sink, "sink", {{DType::f32, {s.h}}});
  take(s.slopes, "slopes", {{DType::f32, {s.h}}});
  if (s.dropout > 0) {
    take(true, "rng_state", {{DType::i32, {3}}});
    into.attrs.set("dropout", s.dropout);
    into.attrs.set("key", std::int64_t{0x1234567890abcdef});
  }
  const auto pairs = [&](const std::array<bool, 2>& own, std::int64_t last) {
    return Shape{own[0] ? s.b : 1, own[1] ? s.h : 1, s.s, last};
  };
  if (s.bias) take(true, "bias", {{DType::f32, pairs(*s.bias, s.t)}});
  if (s.attention_bitmask)
    take(true, "attention_bitmask", {{DType::i32, pairs(*s.attention_bitmask, (s.t + 31) / 32)}});
}

Case plain(const Spec& s) {
  const std::int64_t dv = s.dv > 0 ? s.dv : s.d;
  Case result{s.name,
              {{DType::f32, {s.b, s.s, s.h, s.d}},
               {DType::f32, {s.b, s.t, s.kv, s.d}},
               {DType::f32, {s.b, s.t, s.kv, dv}}},
              {},
              s.slow};
  if (s.causal) result.attrs.set("causal", true);
  result.attrs.set("scale", s.scale != 0 ? s.scale : 1 / std::sqrt(static_cast<double>(s.d)));
  return result;
}
Case forward(const Spec& s) {
  Case result = plain(s);
  extend(s, result);
  return result;
}
Case backward(const Spec& s) {
  Case result = plain(s);
  const TensorType o{DType::f32, {s.b, s.s, s.h, result.inputs[2].dim(3)}};
  result.inputs.insert(result.inputs.end(), {o, {DType::f32, {s.b, s.h, s.s}}, o});
  extend(s, result);
  return result;
}

std::vector<Spec> specs() {
  return {
      {.name = "one"},
      {.name = "two", .s = 2, .t = 2},
      {.name = "tile", .s = 64, .t = 64, .h = 2, .kv = 2, .d = 64},
      {.name = "tail", .b = 2, .s = 37, .t = 37, .h = 3, .kv = 3, .d = 32},
      {.name = "tail-full", .b = 2, .s = 37, .t = 37, .h = 3, .kv = 3, .d = 32, .causal = false},
      {.name = "grouped", .b = 2, .s = 33, .t = 33, .h = 6, .kv = 2, .d = 24},
      {.name = "one-kv", .s = 65, .t = 65, .h = 4, .kv = 1, .d = 16},
      {.name = "decode", .b = 3, .s = 1, .t = 129, .h = 4, .kv = 2, .d = 64},
      {.name = "chunk", .s = 17, .t = 83, .h = 2, .kv = 1, .d = 40},
      {.name = "cross", .s = 61, .t = 19, .h = 2, .kv = 2, .d = 20, .causal = false},
      {.name = "cross-long", .s = 5, .t = 131, .h = 2, .kv = 2, .d = 80, .causal = false},
      {.name = "d80", .s = 31, .t = 31, .h = 2, .kv = 1, .d = 80},
      {.name = "d128", .s = 67, .t = 67, .h = 2, .kv = 2, .d = 128},
      {.name = "d256", .s = 35, .t = 35, .h = 1, .kv = 1, .d = 256},
      {.name = "d72", .s = 129, .t = 129, .h = 1, .kv = 1, .d = 72},
      {.name = "odd-d", .s = 23, .t = 29, .h = 3, .kv = 1, .d = 19},
      {.name = "sharp", .s = 41, .t = 41, .h = 2, .kv = 2, .d = 64, .scale = 2.0},
      {.name = "llama-tiny", .b = 2, .s = 64, .t = 64, .h = 4, .kv = 2, .d = 16},
      {.name = "window", .b = 2, .s = 83, .t = 83, .h = 4, .kv = 2, .d = 32, .left = 15},
      {.name = "window-one", .s = 37, .t = 37, .h = 2, .kv = 1, .left = 0},
      {.name = "window-chunk", .s = 21, .t = 150, .h = 2, .kv = 2, .d = 24, .left = 40},
      {.name = "window-both", .s = 101, .t = 101, .h = 2, .kv = 2, .causal = false, .left = 9, .right = 20},
      {.name = "window-right", .s = 45, .t = 61, .h = 2, .kv = 1, .causal = false, .right = 7},
      {.name = "window-beside", .s = 60, .t = 20, .h = 2, .kv = 1, .causal = false, .left = 3, .right = 2},
      {.name = "window-before", .s = 60, .t = 60, .h = 2, .kv = 1, .causal = false, .left = 30, .right = -7},
      {.name = "window-behind", .s = 60, .t = 60, .h = 2, .kv = 1, .causal = false, .left = -3, .right = 30},
      {.name = "queries-in-front",
       .b = 2,
       .s = 16,
       .t = 64,
       .h = 4,
       .kv = 2,
       .d = 16,
       .causal = false,
       .right = -32},
      {.name = "soft-cap", .s = 67, .t = 67, .h = 2, .kv = 1, .d = 40, .scale = 2.0, .soft_cap = 3.5},
      {.name = "soft-cap-full", .s = 33, .t = 70, .h = 2, .kv = 2, .causal = false, .soft_cap = 30},
      {.name = "segments", .b = 3, .s = 130, .t = 130, .h = 4, .kv = 2, .d = 20, .segments = true},
      {.name = "segments-full", .b = 2, .s = 70, .t = 90, .h = 2, .kv = 1, .causal = false, .segments = true},
      {.name = "segments-window", .b = 2, .s = 99, .t = 99, .h = 2, .kv = 2, .left = 11, .segments = true},
      {.name = "prefix", .b = 4, .s = 77, .t = 77, .h = 2, .kv = 1, .d = 32, .prefix = true},
      {.name = "prefix-window", .b = 3, .s = 40, .t = 115, .h = 2, .kv = 2, .left = 6, .prefix = true},
      {.name = "query_offset", .b = 5, .s = 19, .t = 120, .h = 4, .kv = 2, .d = 48, .query_offset = true},
      {.name = "query-offset-decode",
       .b = 6,
       .s = 1,
       .t = 200,
       .h = 6,
       .kv = 2,
       .d = 64,
       .query_offset = true},
      {.name = "query-offset-decode-long",
       .b = 2,
       .s = 1,
       .t = 300,
       .h = 8,
       .kv = 2,
       .d = 64,
       .query_offset = true},
      {.name = "query-offset-few-keys",
       .b = 3,
       .s = 50,
       .t = 18,
       .h = 2,
       .kv = 1,
       .left = 8,
       .query_offset = true},
      {.name = "sink", .b = 2, .s = 65, .t = 65, .h = 3, .kv = 1, .d = 24, .sink = true},
      {.name = "sink-window", .b = 2, .s = 50, .t = 50, .h = 4, .kv = 2, .left = 7, .sink = true},
      {.name = "slopes", .b = 2, .s = 72, .t = 72, .h = 4, .kv = 4, .d = 32, .slopes = true},
      {.name = "slopes-full", .s = 30, .t = 97, .h = 3, .kv = 1, .causal = false, .slopes = true},
      {.name = "wide-values", .b = 2, .s = 53, .t = 53, .h = 4, .kv = 2, .d = 24, .dv = 40},
      {.name = "narrow-values", .s = 37, .t = 101, .h = 2, .kv = 1, .d = 96, .causal = false, .dv = 19},
      {.name = "dropout", .b = 2, .s = 70, .t = 70, .h = 4, .kv = 2, .d = 24, .dropout = 0.3},
      {.name = "dropout-segments",
       .b = 2,
       .s = 99,
       .t = 99,
       .h = 2,
       .kv = 1,
       .left = 30,
       .segments = true,
       .dropout = 0.5},
      {.name = "bias", .b = 2, .s = 67, .t = 67, .h = 4, .kv = 2, .bias = kShared},
      {.name = "bias-rows", .b = 3, .s = 33, .t = 70, .h = 2, .kv = 1, .causal = false, .bias = kPerRow},
      {.name = "bias-heads", .b = 2, .s = 41, .t = 131, .h = 4, .kv = 4, .causal = false, .bias = kPerHead},
      {.name = "bias-own",
       .b = 2,
       .s = 50,
       .t = 50,
       .h = 6,
       .kv = 2,
       .left = 20,
       .soft_cap = 4,
       .bias = kOwn},
      {.name = "bitmask",
       .b = 2,
       .s = 130,
       .t = 130,
       .h = 4,
       .kv = 2,
       .causal = false,
       .attention_bitmask = kShared},
      {.name = "bitmask-causal", .b = 2, .s = 99, .t = 120, .h = 2, .kv = 1, .attention_bitmask = kPerRow},
      {.name = "bitmask-heads",
       .b = 2,
       .s = 65,
       .t = 65,
       .h = 4,
       .kv = 2,
       .left = 30,
       .sink = true,
       .attention_bitmask = kPerHead},
      {.name = "bitmask-own",
       .b = 3,
       .s = 37,
       .t = 200,
       .h = 2,
       .kv = 2,
       .causal = false,
       .segments = true,
       .attention_bitmask = kOwn},
      {.name = "bitmask-dropout",
       .s = 70,
       .t = 70,
       .h = 2,
       .kv = 1,
       .dropout = 0.2,
       .bias = kPerHead,
       .attention_bitmask = kShared},
      {.name = "bitmask-decode",
       .b = 2,
       .s = 1,
       .t = 190,
       .h = 4,
       .kv = 2,
       .d = 64,
       .bias = kOwn,
       .attention_bitmask = kPerRow},
      {.name = "everything",
       .b = 3,
       .s = 70,
       .t = 131,
       .h = 6,
       .kv = 2,
       .d = 40,
       .dv = 24,
       .left = 50,
       .soft_cap = 5,
       .segments = true,
       .prefix = true,
       .query_offset = true,
       .sink = true,
       .slopes = true,
       .bias = kPerHead,
       .attention_bitmask = kPerRow},
      {.name = "smollm2", .s = 128, .t = 128, .h = 9, .kv = 3, .d = 64, .slow = true},
      {.name = "gpt2", .b = 4, .s = 256, .t = 256, .h = 12, .kv = 12, .d = 64, .slow = true},
      {.name = "gpt2-1024", .s = 1024, .t = 1024, .h = 12, .kv = 12, .d = 64, .slow = true},
      {.name = "llama-1b", .s = 512, .t = 512, .h = 32, .kv = 8, .d = 64, .slow = true},
      {.name = "llama2-7b", .s = 512, .t = 512, .h = 32, .kv = 32, .d = 128, .slow = true},
      {.name = "window-2048", .s = 2048, .t = 2048, .h = 8, .kv = 2, .d = 64, .slow = true, .left = 255},
      {.name = "segments-2048",
       .s = 2048,
       .t = 2048,
       .h = 8,
       .kv = 2,
       .d = 64,
       .slow = true,
       .segments = true},
      {.name = "bitmask-2048",
       .s = 2048,
       .t = 2048,
       .h = 8,
       .kv = 2,
       .d = 64,
       .slow = true,
       .attention_bitmask = kShared},
      {.name = "bias-512",
       .b = 2,
       .s = 512,
       .t = 512,
       .h = 8,
       .kv = 8,
       .d = 64,
       .causal = false,
       .slow = true,
       .bias = kPerHead},
      {.name = "decode-2048",
       .b = 4,
       .s = 1,
       .t = 2048,
       .h = 32,
       .kv = 8,
       .d = 64,
       .slow = true,
       .query_offset = true},
  };
}

// Head dimensions, and what else GPU kernels are compiled for.
struct Kind {
  bool common, causal, plain, dropout;  // common: sizes and grouping as models have them
  std::int64_t d, dv;
  bool bias, attention_bitmask;
};
Kind random_kind(std::uint64_t seed) {
  Rng rng(seed);
  Kind kind{};
  kind.common = rng.flip(0.3);
  kind.d = kind.common ? rng.of({8, 40, 64, 72, 80, 96, 128, 150, 192, 256})
                       : rng.of({16, 19, 20, 24, 32, 40, 48, 64, 72, 80, 96, 128, 160, 256});
  kind.causal = rng.flip(0.6);
  kind.plain = rng.flip(0.4);
  if (kind.plain) return kind;
  if (rng.flip(0.2)) kind.dv = rng.of({16, 19, 24, 40, 64, 72, 128, 256});
  kind.dropout = rng.flip(0.1);
  kind.bias = rng.flip(0.2);
  kind.attention_bitmask = rng.flip(0.2);
  return kind;
}

// No more than `most` products of a head's scores.
void draw_common_shape(Rng& rng, std::int64_t most, Spec& spec) {
  do {
    spec.b = rng.integer(1, 2);
    const std::int64_t group = rng.of({0, 1, 4, 8});  // 0: six heads for two
    spec.kv = group == 0 ? 2 : rng.integer(1, 2);
    spec.h = group == 0 ? 6 : spec.kv * group;
    spec.s = rng.of({1, 2, 16, 63, 64, 65, 128, 378, 1024});
    const std::int64_t keys = rng.of({0, 1, 676, 4096});
    spec.t = keys == 0 ? spec.s : keys == 1 ? (3 * spec.s + 1) / 2 : keys;
  } while (spec.b * spec.h * spec.s * spec.t * spec.d > most || (spec.causal && spec.t < spec.s));
}

void draw_shape(Rng& rng, Spec& spec) {
  spec.b = rng.integer(1, 3);
  spec.kv = rng.integer(1, 3);
  spec.h = spec.kv * rng.integer(1, 4);
  spec.s = rng.extent(70);
  spec.t = rng.extent(140);
  if (spec.causal) spec.t = rng.flip() ? spec.s : std::max(spec.s, spec.t);
}

// The kind by the upper half of the seed.
Spec random_spec(const CaseSeed& seed, std::int64_t most = 4000000) {
  const Kind kind = random_kind(seed.seed >> 32);
  Rng rng(seed);
  Spec spec{.name = "random", .d = kind.d, .causal = kind.causal, .dv = kind.dv};
  kind.common ? draw_common_shape(rng, most, spec) : draw_shape(rng, spec);
  if (rng.flip(0.2)) spec.scale = rng.uniform(0.05, 0.6);
  if (kind.plain) return spec;
  if (rng.flip(0.4)) spec.left = kind.common ? rng.of({0, 15, 126}) : rng.extent(60) - 1;
  if (!spec.causal && rng.flip(0.4)) spec.right = rng.extent(60);
  // Of a block of keys beside the queries' own.
  if (!spec.causal && spec.right < kUnlimited && rng.flip(0.3)) spec.right = -spec.right;
  if (spec.left < kUnlimited && rng.flip(0.1)) spec.left = -spec.left;
  const bool window = spec.causal || spec.left < kUnlimited || spec.right < kUnlimited;
  if (rng.flip(0.25)) spec.soft_cap = rng.uniform(1, 40);
  spec.segments = rng.flip(0.3);
  spec.prefix = window && rng.flip(0.25);
  spec.sink = rng.flip(0.25);
  spec.slopes = rng.flip(0.25);
  spec.query_offset = (window || spec.slopes) && rng.flip(0.25);
  if (kind.dropout) spec.dropout = rng.uniform(0.01, 0.8);
  if (kind.bias) spec.bias = {rng.flip(), rng.flip()};
  if (kind.attention_bitmask) spec.attention_bitmask = {rng.flip(), rng.flip()};
  return spec;
}

// The listed ones, and some that are drawn from sizes of models, every mask and modifier with them.
std::vector<Spec> all_specs() {
  std::vector<Spec> result = specs();
  constexpr int kDrawn = 16;
  for (int i = 0; i < kDrawn; ++i) {
    Spec& spec = result.emplace_back(random_spec({mix(2026, static_cast<std::uint64_t>(i))}, 200000000));
    spec.name = "drawn-" + std::to_string(i);
    spec.slow = true;
  }
  return result;
}

std::vector<Case> all(Case (*make)(const Spec&)) {
  std::vector<Case> result;
  for (const Spec& spec : all_specs()) result.push_back(make(spec));
  return result;
}

}  // namespace

std::vector<Case> cases() { return all(forward); }
std::vector<Case> cases_grad() { return all(backward); }
std::vector<Case> cases_bias_grad() {
  std::vector<Case> result;
  for (const Spec& spec : all_specs())
    if (spec.bias) result.push_back(backward(spec));
  return result;
}
Case random_case(const CaseSeed& seed) { return forward(random_spec(seed)); }
Case random_grad(const CaseSeed& seed) { return backward(random_spec(seed)); }
Case random_bias_grad(const CaseSeed& seed) {
  Spec spec = random_spec(seed);
  Rng rng(mix(seed.seed, 1));
  spec.bias = {rng.flip(), rng.flip()};
  return backward(spec);
}

namespace {

// Documents of about 12 positions, packed one after the other; one query in 16 belongs to none (its row may
// see nothing). With every fourth seed documents are mixed position by position.
std::int32_t segment(std::uint64_t seed, std::int64_t position) {
  const auto bits = [&](std::int64_t at) { return mix(seed, static_cast<std::uint64_t>(at)) >> 32; };
  if (seed % 4 == 0) return static_cast<std::int32_t>(bits(position) % 3);
  std::int32_t documents = 0;
  for (std::int64_t at = 1; at <= position; ++at) documents += bits(at) % 12 == 0;
  return documents;
}

// Blocks of a quarter of the keys and some queries that are seen whole, not at all or in part; every thirteenth query sees
// nothing. Bits beyond the keys are set as it comes.
void make_bits(const AttentionDims& d, std::uint64_t seed, const TensorView& into) {
  const std::int64_t words = d.bits_words(), side = std::max<std::int64_t>(1, d.t / 4);
  auto* bits = into.as<std::uint32_t>();
  for (std::int64_t row = 0; row < into.type.elements() / words; ++row) {
    const std::int64_t i = row % d.s, part = row / d.s;
    for (std::int64_t word = 0; word < words; ++word) {
      const auto drawn = [&](std::int64_t at) {
        return mix(seed, static_cast<std::uint64_t>(part << 40 | at));
      };
      auto& set = bits[row * words + word] = static_cast<std::uint32_t>(drawn(i << 20 | word) >> 32);
      for (std::int64_t j = 32 * word; j < std::min(d.t, 32 * word + 32); ++j) {
        const std::uint64_t kind = drawn(std::int64_t{1} << 39 | i / 48 << 20 | j / side) % 3;
        const std::uint32_t bit = std::uint32_t{1} << j % 32;
        if (kind == 0 || i % 13 == 12) set &= ~bit;
        if (kind == 1 && i % 13 != 12) set |= bit;
      }
    }
  }
}

// One of the inputs that masks and modifiers are made of.
void make_extra(const AttentionDims& d, int index, std::uint64_t seed, const TensorView& into) {
  if (index == d.sink) return fill_uniform(into, mix(seed, 70), -2, 2);
  if (index == d.slopes) return fill_uniform(into, mix(seed, 71), 0, 0.5);
  if (index == d.prefix) return fill_integers(into, mix(seed, 72), 0, d.t);
  if (index == d.query_offset) return fill_integers(into, mix(seed, 73), -2, d.t);
  if (index == d.rng_state) return fill_integers(into, mix(seed, 76), 0, INT32_MAX);
  if (index == d.bias) return fill_uniform(into, mix(seed, 77), -2, 2);
  if (index == d.attention_bitmask) return make_bits(d, mix(seed, 78), into);
  const bool queries = index == d.q_segments;
  const std::int64_t length = queries ? d.s : d.t;
  for (std::int64_t b = 0; b < d.b; ++b)
    for (std::int64_t at = 0; at < length; ++at) {
      // Queries stand behind the keys that there are more of.
      const std::int64_t position = queries ? std::max<std::int64_t>(0, at + d.t - d.s) : at;
      const bool none = queries && mix(mix(seed, 75), static_cast<std::uint64_t>(at)) % 16 == 0;
      into.as<std::int32_t>()[b * length + at] =
          none ? -1 : segment(mix(seed, 74) + static_cast<std::uint64_t>(b), position);
    }
}

}  // namespace

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index < 3)
    fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
  else
    make_extra(attention_dims(call), index, seed, into);
}

void make_input_grad(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index < 3 || index == 5) return fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
  if (index > 5) return make_extra(attention_dims(call), index, seed, into);
  std::vector<TensorType> in(call.inputs.begin(), call.inputs.begin() + 3);
  in.insert(in.end(), call.inputs.begin() + 6, call.inputs.end());
  std::vector<HostTensor> inputs;
  std::vector<ConstTensorView> from;
  const std::vector<TensorType> out{call.inputs[3], call.inputs[4]};
  const CallView forward{"flash_attention", in, out, call.attrs};
  for (std::size_t i = 0; i < in.size(); ++i) {
    HostTensor& x = inputs.emplace_back(in[i]);
    make_input(forward, static_cast<int>(i), seed, {x.type, x.data.data()});
  }
  for (const HostTensor& x : inputs) from.push_back({x.type, x.data.data()});
  HostTensor other(call.inputs[index == 3 ? 4 : 3]);
  const TensorView spare{other.type, other.data.data()};
  const std::vector<TensorView> to{index == 3 ? into : spare, index == 3 ? spare : into};
  reference(forward, from, to);
}

}  // namespace meshloom::kernels::flash_attention_parts
