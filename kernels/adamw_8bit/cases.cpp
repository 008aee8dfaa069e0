#include <cstring>
#include <limits>
#include <utility>

#include "kernels/adamw_8bit/parts.h"
#include "kernels/core/rng.h"

namespace meshloom::kernels::adamw_8bit_parts {
namespace {

// Every fourth seed: a step that is not applied, with a gradient that must not be looked at.
bool skipped(std::uint64_t seed) { return seed % 4 == 3; }
// Every fourth seed: the first step, whose moments are zero.
bool first(std::uint64_t seed) { return seed % 4 == 1; }

Case make(std::string name, Shape shape, double decay, double beta2 = 0.95, bool slow = false) {
  const TensorType p{DType::f32, std::move(shape)}, moment = moment_type(p);
  return {std::move(name),
          {p, p, moment, moment, {DType::f32, {4}}},
          {{"beta1", 0.9}, {"beta2", beta2}, {"eps", 1e-8}, {"weight_decay", decay}},
          slow};
}

}  // namespace

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  Rng rng(mix(seed, static_cast<std::uint64_t>(index)));
  if (index == kControl) {
    into.as<float>()[kRate] = static_cast<float>(rng.uniform(0.0001, 0.01));
    into.as<float>()[kScale] = static_cast<float>(rng.uniform(0.25, 1));
    into.as<float>()[kApply] = skipped(seed) ? 0 : 1;
    into.as<float>()[kStep] = static_cast<float>(first(seed) ? 1 : rng.of({2, 7, 1000, 30000}));
    return;
  }
  if (index == kM || index == kV) {
    std::memset(into.data, 0, static_cast<std::size_t>(into.type.bytes()));
    if (first(seed)) return;
    const std::int64_t elements = call.inputs[kP].elements();
    for (std::int64_t i = 0; i < elements; ++i) {
      // Seldom a second moment that vanishes beside the first, whose update is then as large as it gets.
      const std::int64_t code = index == kV ? rng.integer(96, 255) : rng.integer(0, 255);
      into.data[i / kMomentBlock * kMomentBlockBytes + i % kMomentBlock] =
          static_cast<std::byte>(code == 128 ? 0 : code);
    }
    for (std::int64_t block = 0; block < into.type.dim(0); ++block) {
      const auto scale = static_cast<float>(rng.uniform(0.1, 1));
      std::memcpy(into.data + block * kMomentBlockBytes + kMomentBlock, &scale, sizeof scale);
    }
    return;
  }
  fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
  if (index != kG) return;
  // Gradients of many sizes, for codes of all decades.
  for (std::int64_t i = 0; i < into.type.elements(); i += 3)
    into.as<float>()[i] *= static_cast<float>(i % 2 ? 1e-3 : 1e-6);
  if (!skipped(seed)) return;
  into.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  into.as<float>()[into.type.elements() - 1] = std::numeric_limits<float>::infinity();
}

std::vector<Case> cases() {
  return {make("one", {1}, 0.1),
          make("vector", {131}, 0),
          make("block", {256}, 0.1),
          make("matrix", {37, 29}, 0.1),
          make("cube", {3, 5, 17}, 0.1),
          make("slow-decay", {257}, 0.01, 0.999),
          make("page", {64, 64}, 0.1),
          with_copy(make("one", {1}, 0.1), DType::bf16),
          with_copy(make("vector", {131}, 0), DType::f16),
          with_copy(make("block", {256}, 0.1), DType::bf16),
          with_copy(make("matrix", {37, 30}, 0.1), DType::f16),
          with_copy(make("cube", {3, 5, 37}, 0), DType::bf16),
          make("smollm2-ffn", {576, 1536}, 0.1, 0.95, true),
          with_copy(make("smollm2-ffn", {576, 1536}, 0.1, 0.95, true), DType::bf16)};
}

Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  Shape shape{rng.extent(3000)};
  if (rng.flip()) shape = {rng.extent(90), rng.extent(90)};
  const Case plain = make("random", shape, rng.flip() ? 0 : 0.1, rng.flip() ? 0.95 : 0.999);
  return rng.flip() ? plain : with_copy(plain, rng.flip() ? DType::bf16 : DType::f16);
}

}  // namespace meshloom::kernels::adamw_8bit_parts
