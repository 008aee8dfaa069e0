#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/random.h"
#include "kernels/rope/rope.h"
#include "kernels/rules.h"

namespace meshloom::kernels {
namespace {

constexpr std::array kScaling{"factor", "low", "high", "length"};

bool is_scaled(const Attrs& attrs) { return attrs.has("factor"); }

std::vector<TensorType> infer_rotated(Rules& rules) {
  rules.floating(0);
  rules.rank(0, 4, 4);
  rules.require(rules.number("theta") > 0, "theta must be positive", std::to_string(rules.number("theta")));
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
  return {rules[0]};
}

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("rope", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"theta", "pairing", "dims", "offset"}, {"inverse"});
  return infer_rotated(rules);
}

std::vector<TensorType> infer_scaled(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("rope_scaled", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"theta", "pairing", "dims", "offset", "factor", "low", "high", "length"}, {"inverse"});
  for (const char* name : kScaling)
    rules.require(rules.number(name) > 0, std::string(name) + " must be positive", std::to_string(rules.number(name)));
  rules.require(rules.number("high") > rules.number("low"), "high must be above low", std::to_string(rules.number("high")));
  return infer_rotated(rules);
}

// Radians per position of pair p.
double frequency_of(const Attrs& attrs, std::int64_t p) {
  const double plain = std::pow(attrs.number("theta"),
                                -2.0 * static_cast<double>(p) / static_cast<double>(attrs.integer("dims")));
  if (!is_scaled(attrs)) return plain;
  const double low = attrs.number("low"), high = attrs.number("high"), factor = attrs.number("factor");
  const double turns = attrs.number("length") * plain / (2 * std::numbers::pi);
  const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
  return plain * (kept + (1 - kept) / factor);
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
  const double sign = call.attrs.flag("inverse") ? -1 : 1;
  const bool half = call.attrs.text("pairing") == "half";
  if (outputs[0].data != inputs[0].data)
    std::memcpy(outputs[0].data, inputs[0].data, static_cast<std::size_t>(type.bytes()));
  for (std::int64_t position = 0; position < s; ++position)
    for (std::int64_t p = 0; p < dims / 2; ++p) {
      const double angle = sign * static_cast<double>(position + offset) * frequency_of(call.attrs, p);
      const double cosine = std::cos(angle), sine = std::sin(angle);
      const std::int64_t first = half ? p : 2 * p, second = half ? p + dims / 2 : 2 * p + 1;
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t head = 0; head < h; ++head) {
          float* row = outputs[0].as<float>() + ((b * s + position) * h + head) * d;
          const double x = row[first], y = row[second];
          row[first] = static_cast<float>(x * cosine - y * sine);
          row[second] = static_cast<float>(x * sine + y * cosine);
        }
    }
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}};
  Attrs attrs;
  for (const auto& [name, value] : args.call.attrs.items())
    if (name != "inverse") attrs.set(name, value);
  if (!args.call.attrs.flag("inverse")) attrs.set("inverse", true);
  return {args.builder.call1(is_scaled(args.call.attrs) ? "rope_scaled" : "rope", {args.cotangents[0]}, std::move(attrs))};
}

// The position of a row is its index: the sequence stays whole.
std::string partition(const CallView&) { return "b.h.->b.h."; }

// An angle in f32 is off by an ulp of itself; the largest is the last position.
Tolerance tolerance(const CallView& call) {
  const auto last = static_cast<double>(call.attrs.integer("offset") + call.inputs[0].dim(1));
  const double eps = hal::epsilon(DType::f32);
  return {8 * eps, (16 + 2 * last) * eps, 0};
}

Narrow narrow(const CallView&) { return {.same = {0}}; }

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
std::vector<Case> cases() {
  return {make("pair", {1, 3, 1, 2}, 10000, true, 2, 0),
          make("half", {2, 17, 3, 16}, 10000, true, 16, 0),
          make("interleaved", {2, 17, 3, 16}, 10000, false, 16, 0),
          make("half-back", {2, 17, 3, 20}, 10000, true, 20, 0, true),
          make("interleaved-back", {2, 17, 3, 20}, 10000, false, 20, 0, true),
          make("part-half", {1, 9, 2, 40}, 10000, true, 24, 0),
          make("part-interleaved", {1, 9, 2, 41}, 10000, false, 24, 0),
          make("offset", {1, 1, 5, 64}, 500000, true, 64, 211),
          make("smollm2", {1, 128, 9, 64}, 10000, true, 64, 0, false, true),
          make("llama2-7b", {1, 512, 32, 128}, 10000, true, 128, 0, false, true)};
}
Case random_case(std::uint64_t seed) {
  Dice dice(seed);
  const std::int64_t d = dice.of({2, 3, 8, 10, 16, 20, 40, 64, 65, 80, 128});
  return make("random", {dice.integer(1, 3), dice.extent(70), dice.integer(1, 5), d},
              static_cast<double>(dice.of({100, 10000, 500000})), dice.flip(),
              dice.flip() ? d - d % 2 : 2 * dice.integer(1, d / 2), dice.flip() ? 0 : dice.integer(0, 300),
              dice.flip());
}

Case scaled(Case plain, double factor, double low, double high, double length) {
  plain.attrs.set("factor", factor);
  plain.attrs.set("low", low);
  plain.attrs.set("high", high);
  plain.attrs.set("length", length);
  return plain;
}
std::vector<Case> scaled_cases() {
  return {scaled(make("llama3", {2, 17, 3, 16}, 500000, true, 16, 0), 8, 1, 4, 64),
          scaled(make("llama3-back", {1, 9, 2, 20}, 10000, true, 20, 3, true), 4, 1, 4, 32),
          scaled(make("interleaved", {1, 9, 2, 24}, 10000, false, 16, 0), 32, 1, 4, 48)};
}
Case random_scaled_case(std::uint64_t seed) {
  Dice dice(seed ^ 0x5ca1ed);
  const double low = dice.uniform(0.5, 2);
  return scaled(random_case(seed), dice.uniform(1, 32), low, low + dice.uniform(0.5, 4), dice.uniform(8, 512));
}

}  // namespace

Tensor rope(Tensor x, const RopeOptions& options) {
  Attrs attrs{{"theta", options.theta},
              {"pairing", std::string(options.pairing == RopePairing::half ? "half" : "interleaved")},
              {"dims", options.dims ? options.dims : x.dim(-1)},
              {"offset", options.offset}};
  if (options.scaling) {
    const RopeScaling& scaling = *options.scaling;
    attrs.set("factor", scaling.factor);
    attrs.set("low", scaling.low);
    attrs.set("high", scaling.high);
    attrs.set("length", scaling.length);
  }
  return x.builder->call1(options.scaling ? "rope_scaled" : "rope", {x}, std::move(attrs));
}

void add_rope(Catalog& catalog) {
  Contract rope{.name = "rope",
                .infer = infer,
                .flops = flops,
                .bytes = bytes_once,
                .reference = reference,
                .narrow = narrow,
                .gradient = gradient,
                .partition = partition,
                .tolerance = tolerance,
                .cases = cases,
                .in_place = in_place,
                .random_case = random_case};
  Contract scaled = rope;
  scaled.name = "rope_scaled";
  scaled.infer = infer_scaled;
  scaled.cases = scaled_cases;
  scaled.random_case = random_scaled_case;
  catalog.add(std::move(rope));
  catalog.add(std::move(scaled));
}

}  // namespace meshloom::kernels
