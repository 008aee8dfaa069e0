#include <bit>
#include <limits>

#include "kernels/core/catalog.h"
#include "kernels/core/philox.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/stochastic_round/stochastic_round.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("stochastic_round", inputs, attrs);
  rules.inputs({"x", "rng_state"});
  rules.attributes({"key"});
  rules.dtype(0, DType::f32);
  rules.rank(0, 1, 8);
  rules.dtype(1, DType::i32);
  rules.shape(1, {3});
  rules.require(rules.integer("key") >= 0, "key must not be negative", std::to_string(rules.integer("key")));
  return {{DType::bf16, rules[0].shape}};
}

// The numbers are those of bf16 before they are narrowed.
void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const StochasticRoundKeys keys = stochastic_round_keys(call);
  const auto* state = inputs[1].as<std::int32_t>();
  PhiloxWords words{};
  for (std::int64_t e = 0; e < call.inputs[0].elements(); ++e) {
    const auto block = static_cast<std::uint64_t>(e) / 8;
    if (e % 8 == 0)
      words = philox({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                       static_cast<std::uint32_t>(state[1]), static_cast<std::uint32_t>(state[0])}},
                     keys.k0, keys.k1);
    const std::uint32_t draw = words.v[e % 8 / 2] >> (e % 2 * 16);
    const std::uint16_t rounded =
        stochastic_bf16(std::bit_cast<std::uint32_t>(inputs[0].as<float>()[e]), draw);
    outputs[0].as<float>()[e] = std::bit_cast<float>(std::uint32_t{rounded} << 16);
  }
}

std::string partition(const CallView& call) {
  const std::string all(static_cast<std::size_t>(call.inputs[0].rank()), '.');
  return all + ",.->" + all;
}

Tolerance exact(const CallView&) { return {}; }

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index == 1) return fill_integers(into, mix(seed, 1), 0, std::numeric_limits<std::int32_t>::max());
  fill_uniform(into, mix(seed, 0), -1, 1);
  constexpr float kOdd[] = {
      1.0f, -0.5f, 0.0f, -0.0f, 3.3e38f, 1e-40f, std::numeric_limits<float>::infinity(), 1.00390625f};
  for (std::int64_t i = 0; i < call.inputs[0].elements(); i += 5)
    into.as<float>()[i] = kOdd[static_cast<std::size_t>(i / 5) % std::size(kOdd)];
}

Case make(std::string name, Shape shape, std::int64_t key, bool slow = false) {
  return {std::move(name), {{DType::f32, std::move(shape)}, {DType::i32, {3}}}, {{"key", key}}, slow};
}
std::vector<Case> cases() {
  return {make("one", {1}, 0),
          make("two", {2}, 7),
          make("seven", {7}, 1),
          make("eight", {8}, 2),
          make("nine", {9}, std::int64_t{1} << 40),
          make("rows", {37, 29}, 3),
          make("page", {64, 65}, std::numeric_limits<std::int64_t>::max()),
          make("smollm2-ffn", {576, 1536}, 5, true)};
}
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  return make("random", {rng.extent(90), rng.extent(90)}, rng.integer(0, 1000));
}

}  // namespace

StochasticRoundKeys stochastic_round_keys(const CallView& call) {
  const auto key = static_cast<std::uint64_t>(call.attrs.integer("key"));
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

Tensor stochastic_round(Tensor x, Tensor rng_state, std::uint64_t key) {
  return x.builder->call1("stochastic_round", {x, rng_state},
                          {{"key", static_cast<std::int64_t>(key & 0x7fffffffffffffffu)}});
}

void add_stochastic_round(Catalog& catalog) {
  catalog.add(Contract{.name = "stochastic_round",
                       .infer = infer,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .partition = partition,
                       .tolerance = exact,
                       .cases = cases,
                       .in_place = never_in_place,
                       .make_input = make_input,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels
