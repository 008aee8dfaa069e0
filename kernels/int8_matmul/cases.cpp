#include <limits>

#include "kernels/core/rng.h"
#include "kernels/int8_matmul/parts.h"

namespace meshloom::kernels::int8_matmul_parts {
namespace {

struct Spec {
  std::string name;
  std::int64_t m = 1, n = 1, k = 1;
  bool bias = false, through = false, slow = false;
};

Case make(const Spec& s) {
  Case result{s.name,
              {{DType::i8, {s.m, s.k}}, {DType::f32, {s.m}}, {DType::i8, {s.n, s.k}}, {DType::f32, {s.n}}},
              {},
              s.slow};
  if (s.bias) {
    result.attrs.set("bias", true);
    result.inputs.push_back({DType::f32, {s.n}});
  }
  if (s.through) {
    result.attrs.set("through", true);
    result.inputs.push_back({DType::f32, {s.m, s.k}});
    result.inputs.push_back({DType::f32, {s.n, s.k}});
  }
  return result;
}

Case codes(std::string name, std::int64_t m, std::int64_t k, bool slow = false) {
  return {std::move(name), {{DType::i8, {m, k}}, {DType::f32, {m}}}, {}, slow};
}

Case rows(std::string name, std::int64_t m, std::int64_t k, bool slow = false) {
  return {std::move(name), {{DType::f32, {m, k}}}, {}, slow};
}

}  // namespace

std::vector<Case> cases() {
  const std::vector<Spec> specs{
      {.name = "one", .m = 1, .n = 1, .k = 1},
      {.name = "dot", .m = 1, .n = 1, .k = 257},
      {.name = "row", .m = 1, .n = 67, .k = 31},
      {.name = "column", .m = 67, .n = 1, .k = 31},
      {.name = "square", .m = 64, .n = 64, .k = 64},
      {.name = "tail", .m = 37, .n = 53, .k = 29, .bias = true},
      {.name = "tile-minus", .m = 127, .n = 127, .k = 127},
      {.name = "tile-plus", .m = 129, .n = 130, .k = 131, .bias = true},
      {.name = "wide", .m = 9, .n = 521, .k = 336},
      {.name = "deep", .m = 13, .n = 17, .k = 5003},
      {.name = "through", .m = 20, .n = 19, .k = 65, .through = true},
      {.name = "through-bias", .m = 20, .n = 19, .k = 68, .bias = true, .through = true},
      {.name = "smollm2-q", .m = 256, .n = 576, .k = 576, .slow = true},
      {.name = "smollm2-ffn", .m = 256, .n = 1536, .k = 576, .slow = true},
      {.name = "llama2-7b-o", .m = 512, .n = 4096, .k = 4096, .slow = true},
  };
  std::vector<Case> result;
  for (const Spec& spec : specs) result.push_back(make(spec));
  return result;
}

Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  return make({.name = "random",
               .m = rng.extent(150),
               .n = rng.extent(150),
               .k = rng.extent(300),
               .bias = rng.flip(0.3),
               .through = rng.flip(0.3)});
}

std::vector<Case> cases_quantize() {
  return {rows("one", 1, 1),     rows("row", 1, 130),   rows("column", 40, 1),
          rows("tail", 37, 53),  rows("tile", 64, 128), rows("odd", 33, 1031),
          rows("edges", 40, 12), rows("long", 2, 9001), rows("smollm2-ffn", 1536, 576, true)};
}
Case random_quantize(const CaseSeed& seed) {
  Rng rng(seed);
  return rows("random", rng.extent(90), rng.extent(300));
}

std::vector<Case> cases_dequantize() {
  return {codes("one", 1, 1),
          codes("row", 1, 130),
          codes("column", 41, 1),
          codes("tail", 37, 53),
          codes("blocks", 9, 256),
          codes("odd", 33, 1031),
          codes("exchange", 4096, 256, true)};
}
Case random_dequantize(const CaseSeed& seed) {
  Rng rng(seed);
  return codes("random", rng.extent(90), rng.extent(300));
}

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  const std::uint64_t own = mix(seed, static_cast<std::uint64_t>(index));
  // Scales such that sums of k products are of size 1.
  if (into.type.dtype != DType::i8)
    return fill_uniform(into, own, index < 4 ? 0 : -1, index < 4 ? 1.0 / 64 : 1);
  (void)call;
  auto* values = into.as<std::int8_t>();
  Rng rng(own);
  for (std::int64_t i = 0; i < into.type.elements(); ++i)
    values[i] = static_cast<std::int8_t>(rng.flip(0.02) ? (rng.flip() ? 127 : -127) : rng.integer(-127, 127));
}

// Scales of all sizes, and of rows that were not finite.
void make_codes(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index == 0) return make_input(call, index, seed, into);
  Rng rng(mix(seed, 1));
  constexpr float kScales[] = {1, 0.3f, 3e-5f, 1.7e-34f, 1.5e36f, 1e-20f};
  for (std::int64_t r = 0; r < into.type.elements(); ++r)
    into.as<float>()[r] = rng.flip(0.05) ? std::numeric_limits<float>::quiet_NaN()
                                         : kScales[r % 6] * static_cast<float>(rng.uniform(0.5, 1));
}

// Rows of any size, of zeros, with ties, and what is not finite.
void make_rows(const CallView& call, int, std::uint64_t seed, const TensorView& into) {
  const std::int64_t rows = call.inputs[0].dim(0), columns = call.inputs[0].dim(1);
  fill_uniform(into, mix(seed, 0), -1, 1);
  Rng rng(seed);
  constexpr float kSizes[] = {1, 127, 3e-5f, 1e-37f, 2e38f, 0, 1e-40f, 1e-30f};
  for (std::int64_t r = 0; r < rows; ++r) {
    float* x = into.as<float>() + r * columns;
    const float size = rng.flip() ? 1 : kSizes[r % 8];
    for (std::int64_t c = 0; c < columns; ++c) x[c] *= size;
    if (rng.flip(0.3) && columns > 4) {  // whole and half steps
      for (std::int64_t c = 0; c < columns; ++c) x[c] = static_cast<float>(rng.integer(-254, 254)) / 2;
      x[0] = 127;
    }
    if (rng.flip(0.05)) x[columns / 2] = std::numeric_limits<float>::infinity();
    if (rng.flip(0.05)) x[columns - 1] = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace meshloom::kernels::int8_matmul_parts
