#include <utility>

#include "kernels/core/catalog.h"
#include "kernels/core/philox.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/dropout/dropout.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("dropout", inputs, attrs);
  rules.inputs({"x", "rng_state"});
  rules.attributes({"rate", "key", "rows", "share"}, {"whole", "at"});
  rules.floating(0);
  rules.rank(0, 1, 8);
  rules.dtype(1, DType::i32);
  rules.shape(1, {3});
  const double rate = rules.number("rate");
  rules.require(rate >= 0 && rate < 1, "rate must be in [0, 1)", std::to_string(rate));
  rules.require(rules.integer("key") >= 0, "key must not be negative", std::to_string(rules.integer("key")));
  const std::int64_t rows = rules.integer("rows"), share = rules.integer("share");
  rules.require(rows > 0 && share > 0, "rows and share must be positive",
                std::to_string(rows) + " and " + std::to_string(share));
  TensorType whole = rules[0];
  rules.require(attrs.has("whole") == attrs.has("at"), "whole and at stand together",
                "one without the other");
  if (attrs.has("whole")) {
    whole.shape = rules.list("whole");
    const Shape at = rules.list("at"), part = rules[0].shape;
    bool inside = whole.shape.size() == part.size() && at.size() == part.size();
    for (std::size_t d = 0; inside && d < at.size(); ++d) {
      inside = at[d] >= 0 && at[d] + part[d] <= whole.shape[d];
      if (d > 0 && d + 1 < at.size()) inside = inside && part[d] == whole.shape[d];
    }
    rules.require(inside, "x must be a part, along its first and last dimension, of whole from at on",
                  to_string(rules[0]) + " in " + to_string(whole.shape) + " from " + to_string(at) + " on");
  }
  rules.require(whole.elements() % (rows * share) == 0,
                "x must hold a whole number of shares in each of " + std::to_string(rows) + " rows",
                to_string(whole) + " with a share of " + std::to_string(share));
  return {rules[0]};
}

double flops(const CallView& call) { return static_cast<double>(call.inputs[0].elements()); }

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const DropoutDims dims = dropout_dims(call);
  const auto* rng_state = inputs[1].as<std::int32_t>();
  const auto seed = static_cast<std::uint32_t>(rng_state[0]), step = static_cast<std::uint32_t>(rng_state[1]);
  const std::uint64_t first = static_cast<std::uint64_t>(static_cast<std::uint32_t>(rng_state[2])) *
                                  static_cast<std::uint64_t>(dims.row_words) +
                              static_cast<std::uint64_t>(dims.before);
  const double keep = 1 / (1 - call.attrs.number("rate"));
  for (std::int64_t i = 0; i < dims.count; ++i) {
    const std::uint64_t u = first + static_cast<std::uint64_t>(dims.place(i) / dims.share), block = u / 4;
    const PhiloxWords words =
        philox({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), step, seed}},
               dims.k0, dims.k1);
    const double x = inputs[0].as<float>()[i];
    outputs[0].as<float>()[i] = words.v[u % 4] < dims.threshold ? 0.0f : static_cast<float>(x * keep);
  }
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  if (!args.cotangents[0]) return {Tensor{}, Tensor{}};
  return {args.builder.call1("dropout", {args.cotangents[0], args.inputs[1]}, args.call.attrs), Tensor{}};
}

// What is drawn depends on the place, which `local` tells.
std::string partition(const CallView& call) {
  std::string x(static_cast<std::size_t>(call.inputs[0].rank()), '.');
  x.back() = 'F';
  x.front() = 'N';
  return x + ",.->" + x;
}

std::vector<Tensor> local(const LocalArgs& args) {
  if (args.cuts.empty()) return args.builder.call(args.whole.op, args.inputs, args.attrs);
  Attrs attrs = args.attrs;
  if (!attrs.has("whole")) {
    attrs.set("whole", args.whole.inputs[0].shape);
    attrs.set("at", Shape(args.whole.inputs[0].shape.size(), 0));
  }
  Shape at = attrs.list("at");
  for (const auto& [letter, cut] : args.cuts) (letter == 'N' ? at.front() : at.back()) += cut.first;
  attrs.set("at", at);
  return args.builder.call(args.whole.op, args.inputs, attrs);
}

Tolerance tolerance(const CallView&) { return {2 * hal::epsilon(DType::f32), 0, 0}; }
LowPrecision low_precision(const CallView&) { return {.same = {0}}; }
std::vector<std::pair<int, int>> in_place(const CallView&) { return {{0, 0}}; }

void make_input(const CallView&, int index, std::uint64_t seed, const TensorView& into) {
  if (index == 0) return fill_uniform(into, seed, -1, 1);
  Rng rng(seed);
  auto* rng_state = into.as<std::int32_t>();
  rng_state[0] = static_cast<std::int32_t>(rng.integer(INT32_MIN, INT32_MAX));
  rng_state[1] = static_cast<std::int32_t>(rng.integer(0, 1'000'000));
  rng_state[2] = static_cast<std::int32_t>(rng.flip() ? 0 : rng.integer(0, INT32_MAX));
}

Case make(std::string name, Shape shape, double rate, std::int64_t rows, std::int64_t share,
          std::int64_t key = 12345678901234567, bool slow = false) {
  return {std::move(name),
          {{DType::f32, std::move(shape)}, {DType::i32, {3}}},
          {{"rate", rate}, {"key", key}, {"rows", rows}, {"share", share}},
          slow};
}
// As one shard has it.
Case part(Case whole, Shape shape, Shape at) {
  whole.attrs.set("whole", whole.inputs[0].shape);
  whole.attrs.set("at", std::move(at));
  whole.inputs[0].shape = std::move(shape);
  return whole;
}
std::vector<Case> cases() {
  return {make("one", {1}, 0.5, 1, 1),
          make("tail", {3, 7, 5}, 0.1, 3, 1),
          make("rows", {6, 33}, 0.3, 2, 1, INT64_MAX),
          make("most", {4, 129}, 0.9, 4, 1, 0),
          make("none", {5, 8}, 0, 5, 1),
          make("row", {3, 65}, 0.5, 3, 65),
          make("share", {2, 6, 10}, 0.25, 2, 10),
          part(make("rows-of", {6, 33}, 0.3, 6, 1), {3, 33}, {2, 0}),
          part(make("columns-of", {5, 2, 40}, 0.3, 5, 1), {5, 2, 13}, {0, 0, 26}),
          part(make("part-of-shares", {6, 4, 9}, 0.5, 3, 18), {3, 4, 5}, {2, 0, 4}),
          make("smollm2", {1024, 576}, 0.1, 8, 1, 77, true)};
}
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  const std::int64_t rows = rng.integer(1, 4), draws = rng.extent(200),
                     share = rng.flip() ? 1 : rng.extent(40);
  Case whole =
      make("random", {rows, draws, share}, rng.uniform(0, 0.95), rows, share, rng.integer(0, INT64_MAX));
  if (rng.flip()) return whole;
  const std::int64_t of_rows = rng.integer(1, rows), of_share = rng.integer(1, share);
  return part(std::move(whole), {of_rows, draws, of_share},
              {rng.integer(0, rows - of_rows), 0, rng.integer(0, share - of_share)});
}

}  // namespace

DropoutDims dropout_dims(const CallView& call) {
  const double rate = call.attrs.number("rate");
  const auto key = static_cast<std::uint64_t>(call.attrs.integer("key"));
  DropoutDims dims;
  dims.count = call.inputs[0].elements();
  dims.share = call.attrs.integer("share");
  const Shape& part = call.inputs[0].shape;
  const bool of_whole = call.attrs.has("whole");
  const Shape whole = of_whole ? call.attrs.list("whole") : part;
  dims.row_words = elements(whole) / call.attrs.integer("rows") / dims.share;
  dims.run = dims.stride = dims.count;
  if (of_whole) {
    const Shape& at = call.attrs.list("at");
    const std::int64_t columns = whole.back();
    std::int64_t before = at.back();
    if (whole.size() > 1) before += at.front() * (elements(whole) / whole.front());
    if (part.back() != columns && part.size() > 1) {
      dims.run = part.back();
      dims.stride = columns;
    }
    dims.before = before / dims.share;
    dims.rest = before % dims.share;
  }
  dims.k0 = static_cast<std::uint32_t>(key);
  dims.k1 = static_cast<std::uint32_t>(key >> 32);
  dims.threshold = static_cast<std::uint32_t>(rate * 0x1p32);
  dims.scale = static_cast<float>(1 / (1 - rate));
  return dims;
}

Tensor dropout(Tensor x, Tensor rng_state, const DropoutOptions& options) {
  return x.builder->call1("dropout", {x, rng_state},
                          {{"rate", options.rate},
                           {"key", static_cast<std::int64_t>(options.key & ~(std::uint64_t{1} << 63))},
                           {"rows", options.rows},
                           {"share", options.share}});
}

void add_dropout(Catalog& catalog) {
  catalog.add(Contract{.name = "dropout",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .low_precision = low_precision,
                       .gradient = gradient,
                       .partition = partition,
                       .local = local,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = in_place,
                       .make_input = make_input,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels
