#include <cstring>
#include <utility>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/expression.h"
#include "kernels/mask_bits/mask_bits.h"

namespace meshloom::kernels {
namespace {

constexpr std::int64_t kMaxPositions = std::int64_t{1} << 24;  // f32 tells those below apart

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("mask_bits", inputs, attrs);
  const bool positions = rules.flag("positions");
  positions ? rules.attributes({"expr", "positions"})
            : rules.attributes({"expr", "queries", "keys"}, {"positions"});
  const std::size_t roots = rules.expression("expr", 2)->roots.size();
  rules.require(roots == 1, "the expression must have one root", std::to_string(roots));
  if (positions) {
    rules.inputs({"q_positions", "k_positions"});
    for (int i = 0; i < 2; ++i) {
      rules.dtype(i, DType::i32);
      rules.rank(i, 2, 2);
      rules.require(rules[i].dim(0) == rules[0].dim(0), "queries and keys must be of as many rows",
                    to_string(rules[0]) + " and " + to_string(rules[1]));
    }
    return {{DType::i32, {rules[0].dim(0), 1, rules[0].dim(1), (rules[1].dim(1) + 31) / 32}}};
  }
  rules.inputs({});
  const std::int64_t queries = rules.integer("queries"), keys = rules.integer("keys");
  for (const std::int64_t count : {queries, keys})
    rules.require(count > 0 && count < kMaxPositions, "queries and keys must be positive and below 2^24",
                  std::to_string(count));
  return {{DType::i32, {1, 1, queries, (keys + 31) / 32}}};
}

double flops(const CallView& call) {
  const MaskBitsDims d = mask_bits_dims(call);
  return static_cast<double>(operations(parse_expression(call.attrs.text("expr")))) *
         static_cast<double>(d.b) * static_cast<double>(d.s) * static_cast<double>(d.t);
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const MaskBitsDims d = mask_bits_dims(call);
  const Expression expression = parse_expression(call.attrs.text("expr"));
  auto* bits = outputs[0].as<std::uint32_t>();
  std::memset(bits, 0, static_cast<std::size_t>(call.outputs[0].bytes()));
  for (std::int64_t b = 0; b < d.b; ++b)
    for (std::int64_t i = 0; i < d.s; ++i)
      for (std::int64_t j = 0; j < d.t; ++j) {
        const std::int64_t query = d.positions ? inputs[0].as<std::int32_t>()[b * d.s + i] : i + d.t - d.s;
        const std::int64_t key = d.positions ? inputs[1].as<std::int32_t>()[b * d.t + j] : j;
        const double at[] = {static_cast<double>(query), static_cast<double>(key)};
        double visible = 0;
        evaluate(expression, at, &visible);
        if (visible != 0) bits[(b * d.s + i) * d.words() + j / 32] |= std::uint32_t{1} << j % 32;
      }
}

// Without positions queries count from the last key.
std::string partition(const CallView& call) {
  return call.attrs.flag("positions") ? "bs,b.->b.s." : "->....";
}
Tolerance tolerance(const CallView&) { return {}; }

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  fill_integers(into, mix(seed, static_cast<std::uint64_t>(index)), 0, call.inputs[1].dim(1));
}

Case counted(std::string name, std::int64_t queries, std::int64_t keys, std::string expr, bool slow = false) {
  return {std::move(name), {}, {{"expr", std::move(expr)}, {"queries", queries}, {"keys", keys}}, slow};
}
Case positioned(std::string name, std::int64_t rows, std::int64_t queries, std::int64_t keys,
                std::string expr) {
  return {std::move(name),
          {{DType::i32, {rows, queries}}, {DType::i32, {rows, keys}}},
          {{"expr", std::move(expr)}, {"positions", true}}};
}

// Few of them: drivers compile each.
constexpr char kCausal[] = "x1 <= x0", kDilated[] = "x1 <= x0 and (x0 - x1) % 3 == 0",
               kBlocks[] = "x0 // 16 == x1 // 16", kGlobal[] = "x1 < 5 or x0 < 5 or abs(x0 - x1) <= 9",
               kHalf[] = "not eq(x1, floor(x0 * 0.5))";

std::vector<Case> cases() {
  return {counted("one", 1, 1, kCausal),
          counted("nothing", 5, 40, "0"),
          counted("causal", 37, 37, kCausal),
          counted("a-query", 1, 1031, kDilated),
          counted("few-keys", 65, 7, kCausal),
          counted("words", 4, 64, kHalf),
          counted("dilated", 67, 129, kDilated),
          counted("blocks", 100, 100, kBlocks),
          counted("global-and-window", 90, 200, kGlobal),
          counted("no-truths", 33, 33, "x0 - x1"),
          counted("long", 3, 2500, kGlobal),
          positioned("positions", 2, 33, 33, kDilated),
          positioned("positions-of-others", 3, 7, 100, kGlobal),
          counted("context-4096", 4096, 4096, "x1 <= x0 and (x0 - x1 < 256 or x1 % 64 == 0)", true)};
}

Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  const std::int64_t queries = rng.extent(90), keys = rng.extent(400);
  if (rng.flip(0.3))
    return positioned("random", rng.integer(1, 3), queries, keys, rng.flip() ? kDilated : kGlobal);
  const char* const all[] = {kCausal, kDilated, kBlocks, kGlobal, kHalf};
  return counted("random", queries, keys, all[rng.integer(0, 4)]);
}

}  // namespace

MaskBitsDims mask_bits_dims(const CallView& call) {
  const Shape& out = call.outputs[0].shape;
  if (call.attrs.flag("positions")) return {out[0], out[2], call.inputs[1].dim(1), true};
  return {1, out[2], call.attrs.integer("keys"), false};
}

Tensor mask_bits(Builder& builder, const std::string& expression, std::int64_t queries, std::int64_t keys) {
  return builder.call1("mask_bits", {}, {{"expr", expression}, {"queries", queries}, {"keys", keys}});
}
Tensor mask_bits(const std::string& expression, Tensor q_positions, Tensor k_positions) {
  return q_positions.builder->call1("mask_bits", {q_positions, k_positions},
                                    {{"expr", expression}, {"positions", true}});
}

void add_mask_bits(Catalog& catalog) {
  catalog.add(Contract{.name = "mask_bits",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = never_in_place,
                       .make_input = make_input,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels
