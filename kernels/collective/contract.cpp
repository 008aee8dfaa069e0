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
using collective::Order;
using collective::Sizes;

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

TensorType output_of(const Rules& rules, std::int64_t count) {
  const TensorType type{rules[0].dtype, rules.list("shape")};
  rules.require(std::all_of(type.shape.begin(), type.shape.end(), [](std::int64_t dim) { return dim > 0; }) &&
                    type.elements() == count,
                "the shape must have " + std::to_string(count) + " elements", to_string(type));
  return type;
}

Sizes sizes_of(const Attrs& attrs) { return Sizes::from_pairs(attrs.list("runs")); }

Order order_of(const Attrs& attrs) { return attrs.has("order") ? Order::zigzag : Order::contiguous; }

void check_order(const Rules& rules, const Attrs& attrs, const Sizes& sizes) {
  if (!attrs.has("order")) return;
  rules.require(rules.text("order") == "zigzag", "the order must be zigzag, or left out",
                "'" + rules.text("order") + "'");
  rules.require(sizes.runs().size() == 1 && sizes.at(0) % 2 == 0,
                "places in zigzag must have equal and even sizes",
                std::to_string(sizes.at(0)) + " of place 0, " + std::to_string(sizes.total()) + " of all");
}

std::vector<TensorType> infer_gather(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("all_gather", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"axes", "place", "runs", "shape"}, {"order"});
  const Sizes sizes = Sizes::from_pairs(rules.list("runs"));
  check_group(rules, sizes.places());
  check_order(rules, attrs, sizes);
  const std::int64_t own = sizes.at(rules.integer("place"));
  rules.require(own == 0 || own == rules[0].elements(),
                "x must have the elements of its place, " + std::to_string(own), to_string(rules[0]));
  return {output_of(rules, sizes.total())};
}

// Whether every place sends alike, so that there are sizes for one.
bool alike(const Sizes& sizes, std::int64_t places) { return sizes.places() == places; }

std::vector<TensorType> infer_all_to_all(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("all_to_all", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"axes", "place", "places", "runs", "shape"}, {"order"});
  const Sizes sizes = Sizes::from_pairs(rules.list("runs"));
  const std::int64_t places = rules.integer("places");
  check_group(rules, places);
  rules.require(alike(sizes, places) || sizes.places() == places * places,
                "there must be a size for every place, or for every two", std::to_string(sizes.places()));
  if (attrs.has("order"))
    rules.require(alike(sizes, places), "only places that send alike have an order",
                  std::to_string(sizes.places()) + " sizes");
  check_order(rules, attrs, sizes);
  const std::int64_t place = rules.integer("place");
  std::int64_t out = sizes.total(), in = 0;
  if (alike(sizes, places)) {
    in = places * sizes.at(place);
  } else {
    out = sizes.before((place + 1) * places) - sizes.before(place * places);
    for (std::int64_t from = 0; from < places; ++from) in += sizes.at(from * places + place);
  }
  rules.require(out == rules[0].elements(),
                "x must have what its place sends, " + std::to_string(out) + " elements",
                to_string(rules[0]));
  return {output_of(rules, in)};
}

// The sizes of gather_to or scatter_from, and whether this place is the root.
std::pair<Sizes, bool> rooted(const Rules& rules) {
  rules.attributes({"axes", "place", "root", "runs", "shape"});
  Sizes sizes = Sizes::from_pairs(rules.list("runs"));
  check_group(rules, sizes.places());
  const std::int64_t root = rules.integer("root");
  rules.require(root >= 0 && root < sizes.places(),
                "the root must be one of " + std::to_string(sizes.places()), std::to_string(root));
  return {std::move(sizes), root == rules.integer("place")};
}

std::vector<TensorType> infer_gather_to(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("gather_to", inputs, attrs);
  rules.inputs(inputs.size() < 2 ? std::vector<std::string>{"x"} : std::vector<std::string>{"x", "after"});
  const auto [sizes, is_root] = rooted(rules);
  const std::int64_t own = sizes.at(rules.integer("place"));
  rules.require(own == 0 || own == rules[0].elements(),
                "x must have the elements of its place, " + std::to_string(own), to_string(rules[0]));
  return {output_of(rules, is_root ? sizes.total() : 1)};
}

std::vector<TensorType> infer_scatter_from(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("scatter_from", inputs, attrs);
  rules.inputs({"x"});
  const auto [sizes, is_root] = rooted(rules);
  rules.require(!is_root || sizes.total() == rules[0].elements(),
                "x must have the parts of all places, " + std::to_string(sizes.total()) + " elements",
                to_string(rules[0]));
  return {output_of(rules, sizes.at(rules.integer("place")))};
}

std::vector<TensorType> infer_shift(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("shift", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"axes", "place", "places", "by"});
  check_group(rules, rules.integer("places"));
  rules.integer("by");
  return {rules[0]};
}

Sizes in_bytes(const CallView& call) {
  return sizes_of(call.attrs).times(static_cast<std::int64_t>(hal::size_of(call.inputs[0].dtype)));
}

int place_of(const CallView& call) { return static_cast<int>(call.attrs.integer("place")); }

std::vector<Move> gather_moves(const CallView& call) {
  return collective::gather_runs(in_bytes(call), place_of(call), order_of(call.attrs));
}

std::vector<Move> all_to_all_moves(const CallView& call) {
  const Sizes sizes = in_bytes(call);
  const std::int64_t places = call.attrs.integer("places");
  if (alike(sizes, places)) return collective::scatter_runs(sizes, place_of(call), order_of(call.attrs));
  return collective::all_to_all(sizes.list(), static_cast<int>(places), place_of(call));
}

int root_of(const CallView& call) { return static_cast<int>(call.attrs.integer("root")); }

std::vector<Move> gather_to_moves(const CallView& call) {
  return collective::gather_to(in_bytes(call), root_of(call), place_of(call));
}

std::vector<Move> scatter_from_moves(const CallView& call) {
  return collective::scatter_from(in_bytes(call), root_of(call), place_of(call));
}

std::vector<Move> shift_moves(const CallView& call) {
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(call.attrs.integer("places")),
                                        call.inputs[0].bytes());
  return collective::shift(sizes, static_cast<int>(call.attrs.integer("by")), place_of(call));
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const std::int64_t places =
      call.attrs.has("places") ? call.attrs.integer("places") : sizes_of(call.attrs).places();
  if (places != 1)
    throw hal::Error(std::string(call.op), "a group of several places is carried out between ranks",
                     std::to_string(places) + " places");
  std::memcpy(outputs[0].data, inputs[0].data, static_cast<std::size_t>(call.inputs[0].bytes()));
}

// Between ranks nothing is divided any more.
std::string partition(const CallView& call) {
  std::string rule;
  for (const TensorType& input : call.inputs)
    rule += (rule.empty() ? "" : ",") + std::string(static_cast<std::size_t>(input.rank()), '.');
  return rule + "->" + std::string(static_cast<std::size_t>(call.outputs[0].rank()), '.');
}

LowPrecision low_precision(const CallView&) { return {.same = {0}}; }
Tolerance exact(const CallView&) { return {}; }

enum class Kind : std::uint8_t { gather, all_to_all, rooted, shift };

Case alone(std::string name, TensorType type, Kind kind) {
  Attrs attrs{{"axes", "data"}, {"place", 0}};
  if (kind == Kind::all_to_all || kind == Kind::shift) attrs.set("places", 1);
  if (kind == Kind::rooted) attrs.set("root", 0);
  if (kind == Kind::shift) {
    attrs.set("by", 1);
  } else {
    attrs.set("runs", std::vector<std::int64_t>{1, type.elements()});
    attrs.set("shape", std::vector<std::int64_t>{type.elements()});
  }
  return {std::move(name), {std::move(type)}, attrs};
}

template <Kind kind>
std::vector<Case> cases() {
  return {alone("one", {DType::f32, {1}}, kind), alone("tail", {DType::f32, {7, 13}}, kind),
          alone("integers", {DType::i32, {3, 129}}, kind)};
}

template <Kind kind>
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  return alone("random", {rng.flip(0.8) ? DType::f32 : DType::i32, {rng.extent(60), rng.extent(90)}}, kind);
}

template <Kind kind>
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
                  .cases = cases<kind>,
                  .in_place = never_in_place,
                  .random_case = random_case<kind>,
                  .moves = moves};
}

Attrs attrs_of(const GroupPlace& group, const Sizes& sizes, Shape shape, Order order = Order::contiguous) {
  Attrs attrs{
      {"axes", group.axes}, {"place", group.place}, {"runs", sizes.pairs()}, {"shape", std::move(shape)}};
  if (order == Order::zigzag) attrs.set("order", std::string("zigzag"));
  return attrs;
}

}  // namespace

Tensor all_gather(Tensor x, const GroupPlace& group, const Sizes& sizes, Shape shape, Order order) {
  return x.builder->call1("all_gather", {x}, attrs_of(group, sizes, std::move(shape), order));
}

Tensor all_to_all(Tensor x, const GroupPlace& group, const std::vector<std::int64_t>& sizes, Shape shape) {
  std::int64_t places = 0;
  while (places * places < static_cast<std::int64_t>(sizes.size())) ++places;
  Attrs attrs = attrs_of(group, sizes, std::move(shape));
  attrs.set("places", places);
  return x.builder->call1("all_to_all", {x}, attrs);
}

Tensor all_to_all_alike(Tensor x, const GroupPlace& group, const Sizes& sizes, Shape shape, Order order) {
  Attrs attrs = attrs_of(group, sizes, std::move(shape), order);
  attrs.set("places", sizes.places());
  return x.builder->call1("all_to_all", {x}, attrs);
}

Tensor gather_to(Tensor x, const GroupPlace& group, const Sizes& sizes, std::int64_t root, Shape shape) {
  Attrs attrs = attrs_of(group, sizes, group.place == root ? std::move(shape) : Shape{1});
  attrs.set("root", root);
  return x.builder->call1("gather_to", {x}, attrs);
}

Tensor scatter_from(Tensor x, const GroupPlace& group, const Sizes& sizes, std::int64_t root, Shape shape) {
  Attrs attrs = attrs_of(group, sizes, std::move(shape));
  attrs.set("root", root);
  return x.builder->call1("scatter_from", {x}, attrs);
}

Tensor shift(Tensor x, const GroupPlace& group, std::int64_t places, std::int64_t by) {
  return x.builder->call1("shift", {x},
                          {{"axes", group.axes}, {"place", group.place}, {"places", places}, {"by", by}});
}

void add_collective(Catalog& catalog) {
  catalog.add(contract_of<Kind::gather>("all_gather", infer_gather, gather_moves));
  catalog.add(contract_of<Kind::all_to_all>("all_to_all", infer_all_to_all, all_to_all_moves));
  catalog.add(contract_of<Kind::rooted>("gather_to", infer_gather_to, gather_to_moves));
  catalog.add(contract_of<Kind::rooted>("scatter_from", infer_scatter_from, scatter_from_moves));
  catalog.add(contract_of<Kind::shift>("shift", infer_shift, shift_moves));
}

}  // namespace meshloom::kernels
