// The contract of nf4_pack.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/nf4_matmul/nf4.h"
#include "kernels/nf4_matmul/parts.h"

namespace meshloom::kernels::nf4_matmul_parts {
namespace {

std::vector<TensorType> infer_pack(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("nf4_pack", inputs, attrs);
  rules.attributes({"block"});
  rules.inputs({"x"});
  rules.floating(0);
  rules.rank(0, 2, 2);
  const std::int64_t rows = rules[0].dim(0), columns = rules[0].dim(1), block = rules.integer("block");
  require_sizes(rules, columns, block);
  return {{DType::u8, {rows, nf4::row_bytes(columns)}}, {DType::f32, {rows, nf4::blocks(columns, block)}}};
}

void reference_pack(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const Nf4PackDims d = nf4_pack_dims(call);
  auto* codes = outputs[0].as<std::uint8_t>();
  auto* scales = outputs[1].as<float>();
  std::fill_n(codes, d.rows * nf4::row_bytes(d.columns), std::uint8_t{0});
  for (std::int64_t r = 0; r < d.rows; ++r, codes += nf4::row_bytes(d.columns))
    for (std::int64_t first = 0; first < d.columns; first += d.block) {
      const float* x = inputs[0].as<float>() + r * d.columns;
      const std::int64_t end = std::min(first + d.block, d.columns);
      // The bits of magnitudes are in their order, and those of NaN above all.
      std::uint32_t largest = 0;
      for (std::int64_t c = first; c < end; ++c)
        largest = std::max(largest, std::bit_cast<std::uint32_t>(x[c]) & 0x7fffffffu);
      const float scale = *scales++ = nf4::rounded_scale(std::bit_cast<float>(largest));
      for (std::int64_t c = first; c < end; ++c)
        codes[c / 2] |= static_cast<std::uint8_t>(nf4::rounded_code(x[c], scale) << (c % 2 * 4));
    }
}

Case make_pack(std::string name, std::int64_t rows, std::int64_t columns, std::int64_t block,
               bool slow = false) {
  return {std::move(name), {{DType::f32, {rows, columns}}}, {{"block", block}}, slow};
}

std::vector<Case> pack_cases() {
  return {make_pack("one", 1, 1, 64),
          make_pack("row", 1, 130, 64),
          make_pack("rows", 37, 128, 64),
          make_pack("odd", 9, 23, 8),
          make_pack("tail", 33, 77, 32),
          make_pack("column", 40, 1, 8),
          make_pack("short", 21, 20, 64),
          make_pack("heads", 64, 64, 32),
          make_pack("smollm2-keys", 1536, 64, 32, true)};
}

Case random_pack(const CaseSeed& seed) {
  Rng rng(seed);
  return make_pack("random", rng.extent(90), rng.extent(200), rng.of({64, 128, 32, 16, 8}));
}

// Blocks of any size, of zeros, and what is not finite.
void make_pack_input(const CallView& call, int, std::uint64_t seed, const TensorView& into) {
  const Nf4PackDims d = nf4_pack_dims(call);
  fill_uniform(into, mix(seed, 0), -1, 1);
  Rng rng(seed);
  constexpr float kSizes[] = {1, 300, 3e-5f, 1e-37f, 2e38f, 0, 1e-40f, 1e-29f};
  for (std::int64_t r = 0; r < d.rows; ++r)
    for (std::int64_t first = 0; first < d.columns; first += d.block) {
      float* x = into.as<float>() + r * d.columns;
      const std::int64_t end = std::min(first + d.block, d.columns);
      const float size = rng.flip() ? 1 : kSizes[rng.integer(0, 7)];
      for (std::int64_t c = first; c < end; ++c) x[c] *= size;
      if (rng.flip(0.2)) x[first] = std::copysign(size, x[first]);  // its scale is a round number then
      if (rng.flip(0.03)) x[end - 1] = std::numeric_limits<float>::infinity();
      if (rng.flip(0.03)) x[(first + end) / 2] = std::numeric_limits<float>::quiet_NaN();
    }
}

}  // namespace

Contract pack_contract() {
  return {.name = "nf4_pack",
          .infer = infer_pack,
          .flops = no_flops,
          .bytes = bytes_once,
          .reference = reference_pack,
          .low_precision = [](const CallView&) { return LowPrecision{.any = {0}}; },
          .partition = [](const CallView&) { return std::string("m.->m.,m."); },
          .tolerance = [](const CallView&) { return Tolerance{}; },
          .cases = pack_cases,
          .in_place = never_in_place,
          .make_input = make_pack_input,
          .random_case = random_pack};
}

}  // namespace meshloom::kernels::nf4_matmul_parts

namespace meshloom::kernels {

Nf4PackDims nf4_pack_dims(const CallView& call) {
  return {call.inputs[0].dim(0), call.inputs[0].dim(1), call.attrs.integer("block")};
}

Nf4Rows nf4_pack(Tensor x, std::int64_t block) {
  const std::vector<Tensor> outputs = x.builder->call("nf4_pack", {x}, {{"block", block}});
  return {outputs[0], outputs[1]};
}

}  // namespace meshloom::kernels
