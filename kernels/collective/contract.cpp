#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "hal/error.h"
#include "kernels/collective/collective.h"
#include "kernels/collective/moves.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"

namespace meshloom::kernels {
namespace {

using collective::Move;

std::int64_t sum(const std::vector<std::int64_t>& sizes, std::size_t first, std::size_t count,
                 std::size_t stride = 1) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) total += sizes[first + i * stride];
  return total;
}

void check_group(const Rules& rules, std::int64_t places) {
  rules.rank(0, 1, 8);
  const DType dtype = rules[0].dtype;
  rules.require(hal::size_of(dtype) == 4 || hal::is_low_precision(dtype) || hal::size_of(dtype) == 1,
                "x must be of floats, of bytes, or of integers of 4 bytes", to_string(rules[0]));
  const std::int64_t place = rules.integer("place");
  rules.text("axes");
  rules.require(places >= 1, "there must be at least one place", std::to_string(places));
  rules.require(place >= 0 && place < places, "the place must be one of " + std::to_string(places),
                std::to_string(place));
}

void check_sizes(const Rules& rules) {
  for (const std::int64_t size : rules.list("sizes"))
    rules.require(size >= 0, "sizes must not be negative", std::to_string(size));
}

TensorType output_of(const Rules& rules, std::int64_t count) {
  const TensorType type{rules[0].dtype, rules.list("shape")};
  rules.require(std::all_of(type.shape.begin(), type.shape.end(), [](std::int64_t dim) { return dim > 0; }) &&
                    type.elements() == count,
                "the shape must have " + std::to_string(count) + " elements", to_string(type));
  return type;
}

std::vector<TensorType> infer_gather(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("all_gather", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"axes", "place", "sizes", "shape"});
  const std::vector<std::int64_t> sizes = rules.list("sizes");
  check_group(rules, static_cast<std::int64_t>(sizes.size()));
  check_sizes(rules);
  const std::int64_t own = sizes[static_cast<std::size_t>(rules.integer("place"))];
  rules.require(own == 0 || own == rules[0].elements(),
                "x must have the elements of its place, " + std::to_string(own), to_string(rules[0]));
  return {output_of(rules, sum(sizes, 0, sizes.size()))};
}

// The number of places whose all-to-all has so many sizes.
std::size_t places_of(const std::vector<std::int64_t>& sizes) {
  std::size_t places = 0;
  while (places * places < sizes.size()) ++places;
  return places;
}

std::vector<TensorType> infer_all_to_all(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("all_to_all", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"axes", "place", "sizes", "shape"});
  const std::vector<std::int64_t> sizes = rules.list("sizes");
  const std::size_t places = places_of(sizes);
  rules.require(places * places == sizes.size(), "there must be a size for every two places",
                std::to_string(sizes.size()));
  check_group(rules, static_cast<std::int64_t>(places));
  check_sizes(rules);
  const auto place = static_cast<std::size_t>(rules.integer("place"));
  const std::int64_t out = sum(sizes, place * places, places);
  rules.require(out == rules[0].elements(),
                "x must have what its place sends, " + std::to_string(out) + " elements",
                to_string(rules[0]));
  return {output_of(rules, sum(sizes, place, places, places))};
}

std::vector<TensorType> infer_shift(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("shift", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"axes", "place", "places", "by"});
  check_group(rules, rules.integer("places"));
  rules.integer("by");
  return {rules[0]};
}

std::vector<std::int64_t> in_bytes(const CallView& call) {
  std::vector<std::int64_t> sizes = call.attrs.list("sizes");
  for (std::int64_t& size : sizes) size *= static_cast<std::int64_t>(hal::size_of(call.inputs[0].dtype));
  return sizes;
}

int place_of(const CallView& call) { return static_cast<int>(call.attrs.integer("place")); }

std::vector<Move> gather_moves(const CallView& call) {
  return collective::all_gather(in_bytes(call), place_of(call));
}

std::vector<Move> all_to_all_moves(const CallView& call) {
  const std::vector<std::int64_t> sizes = in_bytes(call);
  return collective::all_to_all(sizes, static_cast<int>(places_of(sizes)), place_of(call));
}

std::vector<Move> shift_moves(const CallView& call) {
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(call.attrs.integer("places")),
                                        call.inputs[0].bytes());
  return collective::shift(sizes, static_cast<int>(call.attrs.integer("by")), place_of(call));
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const std::size_t places = call.attrs.has("places") ? static_cast<std::size_t>(call.attrs.integer("places"))
                             : call.op == "all_to_all" ? places_of(call.attrs.list("sizes"))
                                                       : call.attrs.list("sizes").size();
  if (places != 1)
    throw hal::Error(std::string(call.op), "a group of several places is carried out between ranks",
                     std::to_string(places) + " places");
  std::memcpy(outputs[0].data, inputs[0].data, static_cast<std::size_t>(call.inputs[0].bytes()));
}

// Between ranks nothing is divided any more.
std::string partition(const CallView& call) {
  return std::string(static_cast<std::size_t>(call.inputs[0].rank()), '.') + "->" +
         std::string(static_cast<std::size_t>(call.outputs[0].rank()), '.');
}

LowPrecision low_precision(const CallView&) { return {.same = {0}}; }
Tolerance exact(const CallView&) { return {}; }

Case alone(std::string name, TensorType type, bool shifted) {
  if (shifted)
    return {std::move(name), {std::move(type)}, {{"axes", "data"}, {"place", 0}, {"places", 1}, {"by", 1}}};
  const Attrs attrs{{"axes", "data"},
                    {"place", 0},
                    {"sizes", std::vector<std::int64_t>{type.elements()}},
                    {"shape", std::vector<std::int64_t>{type.elements()}}};
  return {std::move(name), {std::move(type)}, attrs};
}

template <bool shifted>
std::vector<Case> cases() {
  return {alone("one", {DType::f32, {1}}, shifted), alone("tail", {DType::f32, {7, 13}}, shifted),
          alone("integers", {DType::i32, {3, 129}}, shifted)};
}

template <bool shifted>
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  return alone("random", {rng.flip(0.8) ? DType::f32 : DType::i32, {rng.extent(60), rng.extent(90)}},
               shifted);
}

template <bool shifted>
Contract contract_of(std::string name,
                     std::vector<TensorType> (*infer)(const std::vector<TensorType>&, const Attrs&),
                     std::vector<Move> (*moves)(const CallView&)) {
  return Contract{.name = std::move(name),
                  .infer = infer,
                  .flops = no_flops,
                  .bytes = bytes_once,
                  .reference = reference,
                  .low_precision = low_precision,
                  .partition = partition,
                  .tolerance = exact,
                  .cases = cases<shifted>,
                  .in_place = never_in_place,
                  .random_case = random_case<shifted>,
                  .moves = moves};
}

Attrs attrs_of(const GroupPlace& group, std::vector<std::int64_t> sizes, Shape shape) {
  return {
      {"axes", group.axes}, {"place", group.place}, {"sizes", std::move(sizes)}, {"shape", std::move(shape)}};
}

}  // namespace

Tensor all_gather(Tensor x, const GroupPlace& group, std::vector<std::int64_t> sizes, Shape shape) {
  return x.builder->call1("all_gather", {x}, attrs_of(group, std::move(sizes), std::move(shape)));
}

Tensor all_to_all(Tensor x, const GroupPlace& group, std::vector<std::int64_t> sizes, Shape shape) {
  return x.builder->call1("all_to_all", {x}, attrs_of(group, std::move(sizes), std::move(shape)));
}

Tensor shift(Tensor x, const GroupPlace& group, std::int64_t places, std::int64_t by) {
  return x.builder->call1("shift", {x},
                          {{"axes", group.axes}, {"place", group.place}, {"places", places}, {"by", by}});
}

void add_collective(Catalog& catalog) {
  catalog.add(contract_of<false>("all_gather", infer_gather, gather_moves));
  catalog.add(contract_of<false>("all_to_all", infer_all_to_all, all_to_all_moves));
  catalog.add(contract_of<true>("shift", infer_shift, shift_moves));
}

}  // namespace meshloom::kernels
