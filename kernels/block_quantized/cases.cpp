#include <cstring>
#include <limits>

#include "hal/low_precision.h"
#include "kernels/block_quantized/parts.h"
#include "kernels/core/rng.h"

namespace meshloom::kernels::block_quantized_parts {
namespace {

struct Spec {
  std::string name, format = "q8_0";
  std::int64_t m = 1, n = 1, k = 32;
  bool int8 = true, bias = false, residual = false, slow = false;
};

Case make(const Spec& s) {
  Case result = weights_case(s.name, s.format, {s.n}, s.k, s.slow);
  result.inputs.insert(result.inputs.begin(), {DType::f32, {s.m, s.k}});
  if (s.int8) result.attrs.set("activations", "int8");
  if (s.bias) {
    result.attrs.set("bias", true);
    result.inputs.push_back({DType::f32, {s.n}});
  }
  if (s.residual) {
    result.attrs.set("residual", true);
    result.inputs.push_back({DType::f32, {s.m, s.n}});
  }
  return result;
}

}  // namespace

Case weights_case(std::string name, const std::string& format, Shape rows, std::int64_t columns, bool slow) {
  rows.push_back(block_quantized::row_bytes(*block_quantized::find_format(format), columns));
  return {std::move(name), {{DType::u8, rows}}, {{"format", format}, {"columns", columns}}, slow};
}

std::vector<Case> cases() {
  std::vector<Spec> specs{
      {.name = "one"},
      {.name = "row", .n = 67, .k = 576},
      {.name = "row-float", .n = 67, .k = 576, .int8 = false},
      {.name = "two", .format = "q4_0", .m = 2, .n = 33, .k = 96, .bias = true},
      {.name = "few", .m = 7, .n = 41, .k = 288, .bias = true},
      {.name = "few-float", .m = 7, .n = 41, .k = 288, .int8 = false, .bias = true},
      {.name = "tile-minus", .format = "q4_0", .m = 31, .n = 63, .k = 64},
      {.name = "tile-plus", .m = 65, .n = 130, .k = 160, .bias = true},
      {.name = "tile-plus-float", .format = "q4_0", .m = 65, .n = 130, .k = 160, .int8 = false},
      {.name = "residual", .m = 65, .n = 130, .k = 160, .bias = true, .residual = true},
      {.name = "residual-float",
       .format = "q4_k",
       .m = 67,
       .n = 43,
       .k = 512,
       .int8 = false,
       .residual = true},
      {.name = "residual-few", .format = "q4_0", .m = 7, .n = 41, .k = 288, .residual = true},
      {.name = "residual-few-float",
       .format = "q6_k",
       .m = 3,
       .n = 67,
       .k = 512,
       .int8 = false,
       .bias = true,
       .residual = true},
      {.name = "residual-row", .n = 131, .k = 576, .bias = true, .residual = true},
      {.name = "deep", .format = "q6_k", .m = 9, .n = 17, .k = 2048},
      {.name = "deep-row", .n = 19, .k = 4128},
      {.name = "deep-float", .m = 9, .n = 37, .k = 1312, .int8 = false},
  };
  for (const block_quantized::Format& format : block_quantized::formats()) {
    const std::string name(format.name);
    const std::int64_t k = format.elements == 32 ? 160 : 512;
    specs.push_back({.name = name, .format = name, .m = 5, .n = 37, .k = k});
    specs.push_back({.name = name + "-row", .format = name, .n = 49, .k = k, .bias = true});
    specs.push_back({.name = name + "-rows", .format = name, .m = 37, .n = 35, .k = k});
    specs.push_back({.name = name + "-float", .format = name, .m = 3, .n = 21, .k = k, .int8 = false});
    specs.push_back({.name = name + "-rows-float",
                     .format = name,
                     .m = 67,
                     .n = 43,
                     .k = k,
                     .int8 = false,
                     .bias = true});
  }
  for (const std::string format : {"q8_0", "q4_0"})
    for (const std::int64_t m : {1, 8, 512})
      specs.push_back({.name = "smollm2-up-" + std::to_string(m) + "-" + format,
                       .format = format,
                       .m = m,
                       .n = 1536,
                       .k = 576,
                       .slow = true});
  specs.push_back({.name = "smollm2-head-q8_0", .n = 49152, .k = 576, .slow = true});
  specs.push_back({.name = "llama2-7b-o-q4_k", .format = "q4_k", .n = 4096, .k = 4096, .slow = true});
  std::vector<Case> result;
  for (const Spec& spec : specs) result.push_back(make(spec));
  return result;
}

std::string random_format(std::uint64_t seed) {
  const auto all = block_quantized::formats();
  return std::string(all[mix(seed, 77) % all.size()].name);
}

Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  const std::string format = random_format(seed.seed);
  const std::int64_t block = block_quantized::find_format(format)->elements;
  return make({.name = "random",
               .format = format,
               .m = rng.flip()   ? rng.integer(1, 20)
                    : rng.flip() ? rng.extent(150)
                                 : rng.integer(64, 150),
               .n = rng.extent(150),
               .k = block * rng.integer(1, 512 / block),
               .int8 = rng.flip(0.6),
               .bias = rng.flip(0.3),
               .residual = rng.flip(0.3)});
}

void make_weights(const block_quantized::Format& format, std::uint64_t seed, const TensorView& into) {
  auto* bytes = into.as<std::uint8_t>();
  const std::int64_t count = into.type.elements();
  for (std::int64_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::uint8_t>(mix(seed, static_cast<std::uint64_t>(i)));
  // The largest magnitude of scale * (code - offset) is 1, or half with a minimum.
  const bool is_superblock = format.elements == 256;
  const double codes = format.has_minimum ? (format.name.starts_with("q5") ? 31 : 15) : format.offset,
               factors = format.name == "q6_k" ? 128
                         : is_superblock       ? 63
                                               : 1;
  Rng rng(mix(seed, 1));
  const auto put = [](std::uint8_t* at, double value) {
    const std::uint16_t bits = hal::to_f16(static_cast<float>(value));
    std::memcpy(at, &bits, 2);
  };
  for (std::int64_t at = 0; at < count; at += format.bytes) {
    const double scale = rng.uniform(0.2, 1) / (codes * factors) *
                         (format.has_minimum ? 1
                          : rng.flip()       ? -1
                                             : 1);
    put(bytes + at + (format.name == "q6_k" ? 208 : 0), scale);
    if (format.has_minimum) put(bytes + at + 2, (is_superblock ? 1 : -1) * rng.uniform(0.1, 0.6) / factors);
  }
}

// With int8: blocks of any size, of zeros, with ties, and what is not finite.
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  const std::uint64_t own = mix(seed, static_cast<std::uint64_t>(index));
  const BlockQuantizedDims d = block_quantized_dims(call);
  if (index == 1) return make_weights(*d.format, own, into);
  fill_uniform(into, own, -1, 1);
  if (index != 0 || !d.int8) return;
  Rng rng(own);
  constexpr double kSizes[] = {0, 1e-40, 1e-30, 0.02};
  for (std::int64_t at = 0; at < d.m * d.k; at += kActivationBlock) {
    float* x = into.as<float>() + at;
    if (rng.flip(0.2)) {
      const double size = kSizes[rng.integer(0, 3)];
      for (std::int64_t i = 0; i < kActivationBlock; ++i) x[i] = static_cast<float>(x[i] * size);
    } else if (rng.flip(0.2)) {
      for (std::int64_t i = 0; i < kActivationBlock; ++i)
        x[i] = static_cast<float>(rng.integer(-254, 254)) / 254;
      x[0] = 0.5f;
    }
  }
  if (d.m > 1 && rng.flip(0.1))  // the last row stays finite
    into.as<float>()[rng.integer(0, (d.m - 1) * d.k - 1)] =
        rng.flip() ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
}

}  // namespace meshloom::kernels::block_quantized_parts
