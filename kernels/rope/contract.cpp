#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/rope/rope.h"
#include "kernels/split/halves.h"

namespace meshloom::kernels {
namespace {

constexpr std::array kRamp{"by_frequency", "by_pair", "shift"};

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("rope", inputs, attrs);
  const bool positions = rules.flag("positions");
  positions ? rules.inputs({"x", "positions"}) : rules.inputs({"x"});
  rules.attributes({"theta", "pairing", "dims", "offset"}, {"inverse", "magnitude", "factor", "by_frequency",
                                                            "by_pair", "shift", "factors", "positions"});
  rules.floating(0);
  rules.rank(0, 4, 4);
  if (positions) {
    rules.dtype(1, DType::i32);
    rules.shape(1, {rules[0].dim(0), rules[0].dim(1)});
  }
  const std::string pairing = rules.text("pairing");
  rules.require(pairing == "half" || pairing == "interleaved", "pairing must be half or interleaved",
                "'" + pairing + "'");
  const std::int64_t dims = rules.integer("dims");
  rules.require(dims >= 2 && dims % 2 == 0 && dims <= rules[0].dim(-1),
                "dims must be even, at least 2 and at most " + std::to_string(rules[0].dim(-1)),
                std::to_string(dims));
  rules.require(rules.integer("offset") >= 0, "offset must not be negative",
                std::to_string(rules.integer("offset")));
  (void)rules.flag("inverse");
  for (const char* name : {"theta", "magnitude", "factor"})
    if (attrs.has(name))
      rules.require(rules.number(name) > 0, std::string(name) + " must be positive",
                    std::to_string(rules.number(name)));
  for (const char* name : kRamp)
    if (attrs.has(name)) (void)rules.number(name);
  rules.require(attrs.has("factor") || std::none_of(kRamp.begin(), kRamp.end(),
                                                    [&](const char* name) { return attrs.has(name); }),
                "by_frequency, by_pair and shift need a factor");
  if (attrs.has("factors")) {
    const std::vector<double> factors = rope_factors(attrs);
    rules.require(factors.size() == static_cast<std::size_t>(dims / 2),
                  "factors must be one number for each of " + std::to_string(dims / 2) + " pairs",
                  std::to_string(factors.size()));
    for (const double factor : factors)
      rules.require(std::isfinite(factor) && factor > 0, "factors must be positive", std::to_string(factor));
    rules.require(!attrs.has("factor"), "factors must not stand beside a factor");
  }
  return {rules[0]};
}

// Radians per position of each pair.
std::vector<double> frequencies_of(const Attrs& attrs) {
  const std::int64_t dims = attrs.integer("dims");
  const std::vector<double> factors = rope_factors(attrs);
  const RopeScaling scaling = rope_scaling(attrs);
  std::vector<double> frequencies;
  for (std::int64_t p = 0; p < dims / 2; ++p) {
    const double plain =
        std::pow(attrs.number("theta"), -2.0 * static_cast<double>(p) / static_cast<double>(dims));
    const double kept = std::clamp(
        scaling.by_frequency * plain + scaling.by_pair * static_cast<double>(p) + scaling.shift, 0.0, 1.0);
    frequencies.push_back(factors.empty() ? plain * (kept + (1 - kept) / scaling.factor)
                                          : plain / factors[static_cast<std::size_t>(p)]);
  }
  return frequencies;
}

double flops(const CallView& call) {
  const std::int64_t rows = call.inputs[0].elements() / call.inputs[0].dim(-1);
  return 3.0 * static_cast<double>(rows) * static_cast<double>(call.attrs.integer("dims"));
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const TensorType& type = call.inputs[0];
  const std::int64_t batch = type.dim(0), s = type.dim(1), h = type.dim(2), d = type.dim(3);
  const std::int64_t dims = call.attrs.integer("dims"), offset = call.attrs.integer("offset");
  const double sign = call.attrs.flag("inverse") ? -1 : 1, magnitude = rope_magnitude(call.attrs);
  const bool half = call.attrs.text("pairing") == "half";
  if (outputs[0].data != inputs[0].data)
    std::memcpy(outputs[0].data, inputs[0].data, static_cast<std::size_t>(type.bytes()));
  const std::int32_t* positions = rope_positions(call) ? inputs[1].as<std::int32_t>() : nullptr;
  const std::vector<double> frequencies = frequencies_of(call.attrs);
  for (std::int64_t row = 0; row < batch * s; ++row) {
    const std::int64_t position = (positions ? positions[row] : row % s) + offset;
    for (std::int64_t p = 0; p < dims / 2; ++p) {
      const double angle = sign * static_cast<double>(position) * frequencies[static_cast<std::size_t>(p)];
      const double cosine = magnitude * std::cos(angle), sine = magnitude * std::sin(angle);
      const std::int64_t first = half ? p : 2 * p, second = half ? p + dims / 2 : 2 * p + 1;
      for (std::int64_t head = 0; head < h; ++head) {
        float* features = outputs[0].as<float>() + (row * h + head) * d;
        const double x = features[first], y = features[second];
        features[first] = static_cast<float>(x * cosine - y * sine);
        features[second] = static_cast<float>(x * sine + y * cosine);
      }
    }
  }
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  std::vector<Tensor> result(args.inputs.size());
  if (!args.cotangents[0]) return result;
  Attrs attrs;
  for (const auto& [name, value] : args.call.attrs.items())
    if (name != "inverse") attrs.set(name, value);
  if (!args.call.attrs.flag("inverse")) attrs.set("inverse", true);
  std::vector<Tensor> inputs = args.inputs;
  inputs[0] = args.cotangents[0];
  result[0] = args.builder.call1("rope", inputs, std::move(attrs));
  return result;
}

std::string partition(const CallView& call) { return rope_positions(call) ? "bsh.,bs->bsh." : "bSh.->bSh."; }

// The position of a row is its index, where it has none of its own.
std::vector<Tensor> local(const LocalArgs& args) {
  const auto cut = args.cuts.find('S');
  if (cut == args.cuts.end()) return args.builder.call(args.whole.op, args.inputs, args.attrs);
  const auto from = [&](Tensor x, std::int64_t first) {
    Attrs attrs = args.attrs;
    attrs.set("offset", attrs.integer("offset") + first);
    return args.builder.call1(args.whole.op, {x}, attrs);
  };
  if (!cut->second.second) return {from(args.inputs[0], cut->second.first)};
  const auto [first, second] = halves(args.inputs[0], 1);
  return {join_halves(from(first, cut->second.first), from(second, *cut->second.second), 1)};
}

// Positions of the cases, the padding's -1 among them.
constexpr std::int64_t kLastPosition = 500;

// An angle in f32 is off by an ulp of itself, and by a few more where its frequency went through a ramp; the
// largest is the last position.
Tolerance tolerance(const CallView& call) {
  const auto last = static_cast<double>(call.attrs.integer("offset") +
                                        (rope_positions(call) ? kLastPosition : call.inputs[0].dim(1)));
  const double eps = hal::epsilon(DType::f32), magnitude = std::max(1.0, rope_magnitude(call.attrs));
  return {8 * eps,
          magnitude * (16 + (call.attrs.has("factor") || call.attrs.has("factors") ? 8 : 2) * last) * eps, 0};
}

void make_input(const CallView&, int index, std::uint64_t seed, const TensorView& into) {
  if (index == 0) return fill_uniform(into, mix(seed, 0), -1, 1);
  fill_integers(into, mix(seed, 1), -1, kLastPosition);
}

LowPrecision low_precision(const CallView&) { return {.same = {0}}; }

std::vector<std::pair<int, int>> in_place(const CallView&) { return {{0, 0}}; }

Case make(std::string name, Shape shape, double theta, bool half, std::int64_t dims, std::int64_t offset,
          bool inverse = false, bool slow = false) {
  Case result{std::move(name),
              {{DType::f32, std::move(shape)}},
              {{"theta", theta},
               {"pairing", std::string(half ? "half" : "interleaved")},
               {"dims", dims},
               {"offset", offset}},
              slow};
  if (inverse) result.attrs.set("inverse", true);
  return result;
}
// With positions of its own for every row.
Case positioned(Case plain) {
  const TensorType& x = plain.inputs[0];
  plain.attrs.set("positions", true);
  plain.inputs.push_back({DType::i32, {x.dim(0), x.dim(1)}});
  return plain;
}
Case scaled(Case plain, const RopeScaling& scaling, double magnitude = 1) {
  plain.attrs.set("factor", scaling.factor);
  plain.attrs.set("by_frequency", scaling.by_frequency);
  plain.attrs.set("by_pair", scaling.by_pair);
  plain.attrs.set("shift", scaling.shift);
  if (magnitude != 1) plain.attrs.set("magnitude", magnitude);
  return plain;
}
Case slowed(Case plain, const std::vector<double>& factors, double magnitude = 1) {
  plain.attrs.set("factors", to_text(factors));
  if (magnitude != 1) plain.attrs.set("magnitude", magnitude);
  return plain;
}
std::vector<Case> cases() {
  return {make("pair", {1, 3, 1, 2}, 10000, true, 2, 0),
          make("half", {2, 17, 3, 16}, 10000, true, 16, 0),
          make("interleaved", {2, 17, 3, 16}, 10000, false, 16, 0),
          make("half-back", {2, 17, 3, 20}, 10000, true, 20, 0, true),
          make("interleaved-back", {2, 17, 3, 20}, 10000, false, 20, 0, true),
          make("part-half", {1, 9, 2, 40}, 10000, true, 24, 0),
          make("part-interleaved", {1, 9, 2, 41}, 10000, false, 24, 0),
          make("offset", {1, 1, 5, 64}, 500000, true, 64, 211),
          scaled(make("linear", {2, 17, 3, 16}, 10000, true, 16, 0), {.factor = 4}),
          scaled(make("by-frequency", {2, 17, 3, 16}, 500000, true, 16, 0),
                 {.factor = 8, .by_frequency = 3.4, .shift = -0.33}),
          scaled(make("by-frequency-back", {1, 9, 2, 20}, 10000, true, 20, 3, true),
                 {.factor = 4, .by_frequency = 1.7, .shift = -0.33}),
          scaled(make("by-pair", {1, 9, 2, 24}, 10000, false, 16, 0),
                 {.factor = 32, .by_pair = -0.2, .shift = 1.2}, 1.35),
          scaled(make("by-pair-back", {1, 9, 2, 25}, 10000, true, 24, 0, true),
                 {.factor = 16, .by_pair = -0.25, .shift = 1.5}, 1.28),
          slowed(make("factors", {2, 17, 3, 16}, 10000, true, 16, 0), {1, 1.03, 1.5, 2.25, 0.75, 8, 31.5, 64},
                 1.19),
          slowed(make("factors-back", {1, 9, 2, 20}, 500000, false, 12, 3, true), {1, 1, 1.25, 3, 40, 40.5}),
          positioned(make("positions", {2, 17, 3, 16}, 10000, true, 16, 0)),
          positioned(make("positions-interleaved", {3, 9, 2, 20}, 10000, false, 12, 7)),
          positioned(make("positions-back", {2, 13, 5, 64}, 500000, true, 64, 3, true)),
          positioned(make("positions-tail", {1, 33, 9, 41}, 10000, false, 24, 0)),
          positioned(scaled(make("positions-by-pair", {2, 9, 2, 24}, 10000, true, 16, 0),
                            {.factor = 32, .by_pair = -0.2, .shift = 1.2}, 1.35)),
          make("smollm2", {1, 128, 9, 64}, 10000, true, 64, 0, false, true),
          make("llama2-7b", {1, 512, 32, 128}, 10000, true, 128, 0, false, true)};
}
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  const std::int64_t d = rng.of({2, 3, 8, 10, 16, 20, 40, 64, 65, 80, 128});
  Case plain = make("random", {rng.integer(1, 3), rng.extent(70), rng.integer(1, 5), d},
                    static_cast<double>(rng.of({100, 10000, 500000})), rng.flip(),
                    rng.flip() ? d - d % 2 : 2 * rng.integer(1, d / 2), rng.flip() ? 0 : rng.integer(0, 300),
                    rng.flip());
  const std::int64_t form = rng.integer(0, 4);
  if (rng.flip(0.3)) plain = positioned(std::move(plain));
  if (form == 0) return plain;
  if (form == 4) {
    std::vector<double> factors;
    for (std::int64_t p = 0; p < plain.attrs.integer("dims") / 2; ++p)
      factors.push_back(rng.uniform(0.5, 64));
    return slowed(plain, factors, rng.flip() ? 1 : rng.uniform(0.5, 1.5));
  }
  RopeScaling scaling{.factor = rng.uniform(1, 32)};
  if (form == 2) scaling = {scaling.factor, rng.uniform(0.5, 8), 0, -rng.uniform(0, 1)};
  if (form == 3) scaling = {scaling.factor, 0, -rng.uniform(0.05, 1), rng.uniform(0, 3)};
  return scaled(plain, scaling, rng.flip() ? 1 : rng.uniform(0.5, 1.5));
}

}  // namespace

Tensor rope(Tensor x, const RopeOptions& options) {
  Attrs attrs{{"theta", options.theta},
              {"pairing", std::string(options.pairing == RopePairing::half ? "half" : "interleaved")},
              {"dims", options.dims ? options.dims : x.dim(-1)},
              {"offset", options.offset}};
  if (options.scaling) {
    attrs.set("factor", options.scaling->factor);
    attrs.set("by_frequency", options.scaling->by_frequency);
    attrs.set("by_pair", options.scaling->by_pair);
    attrs.set("shift", options.scaling->shift);
  }
  if (!options.factors.empty()) attrs.set("factors", to_text(options.factors));
  if (options.backwards) attrs.set("inverse", true);
  if (options.magnitude != 1) attrs.set("magnitude", options.magnitude);
  if (!options.positions) return x.builder->call1("rope", {x}, std::move(attrs));
  attrs.set("positions", true);
  return x.builder->call1("rope", {x, options.positions}, std::move(attrs));
}

bool rope_positions(const CallView& call) { return call.attrs.flag("positions"); }

RopeScaling rope_scaling(const Attrs& attrs) {
  const auto number = [&](const char* name, double otherwise) {
    return attrs.has(name) ? attrs.number(name) : otherwise;
  };
  return {number("factor", 1), number("by_frequency", 0), number("by_pair", 0), number("shift", 0)};
}

std::vector<double> rope_factors(const Attrs& attrs) {
  if (!attrs.has("factors")) return {};
  try {
    return parse_rope_factors(attrs.text("factors"));
  } catch (const Error& error) {
    throw Error("rope", error.where() + " " + error.rule(), error.found());
  }
}

std::vector<double> parse_rope_factors(const std::string& text) {
  std::vector<double> factors;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    double factor = 0;
    const auto read = std::from_chars(at, end, factor);
    if (read.ec != std::errc() || (read.ptr != end && (*read.ptr != ' ' || read.ptr + 1 == end)))
      throw Error("factors", "must be numbers with a space between them", "'" + text + "'");
    factors.push_back(factor);
    at = read.ptr + 1;
  }
  return factors;
}

std::string to_text(const std::vector<double>& factors) { return fmt::format("{}", fmt::join(factors, " ")); }

double rope_magnitude(const Attrs& attrs) { return attrs.has("magnitude") ? attrs.number("magnitude") : 1; }

void add_rope(Catalog& catalog) {
  catalog.add({.name = "rope",
               .infer = infer,
               .flops = flops,
               .bytes = bytes_once,
               .reference = reference,
               .low_precision = low_precision,
               .gradient = gradient,
               .partition = partition,
               .local = local,
               .takes_two_runs = true,
               .tolerance = tolerance,
               .cases = cases,
               .in_place = in_place,
               .make_input = make_input,
               .random_case = random_case});
}

}  // namespace meshloom::kernels
