// Attention over a sequence of which every shard has a part: of queries, keys and values alike, in order.
#include <algorithm>
#include <utility>

#include "hal/error.h"
#include "kernels/cast/cast.h"
#include "kernels/collective/collective.h"
#include "kernels/concat/concat.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/flash_attention/parts.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::kernels::flash_attention_parts {
namespace {

// The parts that shards hold of tensors, along dimension d, at most 1 or the last but one: moved between them and joined.
class Shards {
 public:
  explicit Shards(const Cut& cut) : group_{cut.axes, cut.place}, places_(cut.places), place_(cut.place) {}

  std::int64_t places() const { return places_; }
  std::int64_t place() const { return place_; }

  // All parts, joined along d.
  Tensor gather(Tensor x, std::size_t d) const {
    const auto [outer, inner] = around(x.shape(), d);
    Tensor all = all_gather(x, group_, std::vector<std::int64_t>(at(places_), x.type().elements()),
                            {places_, outer, inner});
    return reshape(outer == 1 ? all : permute(all, {1, 0, 2}), with(x.shape(), d, x.shape()[d] * places_));
  }

  // The sum of what all have, of which each gets its part along d.
  Tensor scatter_sum(Tensor x, std::size_t d) const {
    const std::int64_t own = x.shape()[d] / places_;
    const auto [outer, inner] = around(x.shape(), d);
    const Tensor parts = outer > 1 ? permute(reshape(x, {outer, places_, inner / places_}), {1, 0, 2})
                                   : reshape(x, {places_, 1, inner / places_});
    Tensor sum = reduce_sum(exchange(parts), 2);
    return reshape(cast(sum, x.dtype()), with(x.shape(), d, own));
  }

  // From all of dimension `from` and a part of dimension `to`, which stand side by side, to all of `to` and a part of `from`.
  Tensor redistribute(Tensor x, std::size_t from, std::size_t to) const {
    const Shape& shape = x.shape();
    const std::size_t first = std::min(from, to);
    std::int64_t outer = 1, inner = 1;
    for (std::size_t i = 0; i < first; ++i) outer *= shape[i];
    for (std::size_t i = first + 2; i < shape.size(); ++i) inner *= shape[i];
    const std::int64_t part = shape[from] / places_, own = shape[to];
    Shape redistributed = with(with(shape, from, part), to, own * places_);
    if (from < to) {
      // (outer, places, part own inner) -> (places, outer, part, own inner) -> (outer, part, places, own inner)
      Tensor parts = exchange(permute(reshape(x, {outer, places_, part * own * inner}), {1, 0, 2}));
      return reshape(permute(reshape(parts, {places_, outer * part, own * inner}), {1, 0, 2}), redistributed);
    }
    // (outer own, places, part inner) -> (places, outer, own, part inner) -> (outer, places, own, part inner)
    Tensor parts = exchange(permute(reshape(x, {outer * own, places_, part * inner}), {1, 0, 2}));
    return reshape(permute(reshape(parts, {places_, outer, own * part * inner}), {1, 0, 2}), redistributed);
  }

  // This place's part of a vector.
  Tensor own(Tensor x) const {
    const std::int64_t count = x.dim(0) / places_;
    return reshape(slice_features(reshape(x, {1, x.dim(0)}), place_ * count, count), {count});
  }

  // What the place so many before this one has.
  Tensor passed(Tensor x, std::int64_t by) const {
    return by % places_ == 0 ? x : shift(x, group_, places_, by % places_);
  }

  // The sum of what all have.
  Tensor sum(Tensor x) const {
    const std::int64_t n = x.type().elements();
    return reshape(
        reduce_sum(all_gather(x, group_, std::vector<std::int64_t>(at(places_), n), {places_, n}), 1),
        x.shape());
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static Shape with(Shape shape, std::size_t d, std::int64_t size) {
    shape[d] = size;
    return shape;
  }
  // The elements in front of dimension d, and from it on.
  static std::pair<std::int64_t, std::int64_t> around(const Shape& shape, std::size_t d) {
    std::int64_t outer = 1, inner = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) (i < d ? outer : inner) *= shape[i];
    return {outer, inner};
  }
  // Row i of (places, ...) goes to place i; row i of the result comes from there.
  Tensor exchange(Tensor x) const {
    return all_to_all(x, group_,
                      std::vector<std::int64_t>(at(places_ * places_), x.type().elements() / places_),
                      x.shape());
  }

  GroupPlace group_;
  std::int64_t places_, place_;
};

// The attributes for queries that stand `by` positions further right than T - S, or their offset, says.
Attrs moved_queries(const Attrs& attrs, const AttentionDims& dims, std::int64_t by) {
  if (by == 0) return attrs;
  Attrs moved;
  for (const auto& [name, value] : attrs.items())
    if (name != "causal" && name != "left" && name != "right") moved.set(name, value);
  if (dims.left < kUnlimited) moved.set("left", dims.left - by);
  if (dims.right < kUnlimited) {
    const std::int64_t right = dims.right + by;
    right == 0 ? moved.set("causal", true) : moved.set("right", right);
  }
  return moved;
}

const std::size_t kKeys[] = {1, 2};

std::size_t place_of(int input) { return static_cast<std::size_t>(input); }

// Every shard has all keys and its own queries; what keys get from the queries of all is added up.
std::vector<Tensor> with_all_keys(const LocalArgs& args, const Cut& cut) {
  const AttentionDims dims = attention_dims(args.whole);
  const Shards shards(cut);
  std::vector<Tensor> inputs = args.inputs;
  for (const int keys : {1, 2, dims.k_segments})
    if (keys >= 0) inputs[place_of(keys)] = shards.gather(inputs[place_of(keys)], 1);
  const std::int64_t behind = dims.query_offset >= 0 ? 0 : dims.s - cut.count;
  std::vector<Tensor> outputs =
      args.builder.call(args.whole.op, inputs, moved_queries(args.attrs, dims, cut.first - behind));
  if (args.whole.op != "flash_attention_grad") return outputs;
  for (const std::size_t keys : kKeys) outputs[keys] = shards.scatter_sum(outputs[keys], 1);
  if (dims.sink >= 0) outputs[3] = shards.sum(outputs[3]);
  return outputs;
}

// Every shard has the whole sequence for a part of its heads (Jacobs et al., DeepSpeed Ulysses, 2023).
std::vector<Tensor> with_own_heads(const LocalArgs& args, const Cut& cut) {
  const AttentionDims dims = attention_dims(args.whole);
  const Shards shards(cut);
  const std::int64_t heads = args.inputs[0].dim(2), keys = args.inputs[1].dim(2);
  if (heads % cut.places != 0 || keys % cut.places != 0)
    throw hal::Error(
        "flash_attention divided by all_to_all",
        "the " + std::to_string(cut.places) +
            " parts of a sequence must divide the heads that a rank has; gather and ring need not",
        std::to_string(heads) + " heads of queries and " + std::to_string(keys) + " of keys");
  std::vector<Tensor> inputs = args.inputs;
  const bool grad = args.whole.op != "flash_attention";
  const auto to_heads = [&](int input, std::size_t h, std::size_t s) {
    inputs[place_of(input)] = shards.redistribute(inputs[place_of(input)], h, s);
  };
  for (const int x : {0, 1, 2}) to_heads(x, 2, 1);
  if (grad) to_heads(3, 2, 1), to_heads(4, 1, 2), to_heads(5, 2, 1);
  for (const int segments : {dims.q_segments, dims.k_segments})
    if (segments >= 0) inputs[place_of(segments)] = shards.gather(inputs[place_of(segments)], 1);
  if (dims.sink >= 0) inputs[place_of(dims.sink)] = shards.own(inputs[place_of(dims.sink)]);
  const auto pairs = [&](int input, bool of_heads) {
    if (input < 0) return;
    Tensor& x = inputs[place_of(input)];
    x = of_heads ? shards.redistribute(x, 1, 2) : shards.gather(x, 2);
  };
  pairs(dims.bias, dims.bias_heads);
  pairs(dims.attention_bitmask, dims.bitmask_heads);
  std::vector<Tensor> outputs = args.builder.call(args.whole.op, inputs, args.attrs);
  if (args.whole.op == "flash_attention_bias_grad")
    return {dims.bias_heads ? shards.redistribute(outputs[0], 2, 1) : shards.scatter_sum(outputs[0], 2)};
  outputs[0] = shards.redistribute(outputs[0], 1, 2);
  if (!grad) return {outputs[0], shards.redistribute(outputs[1], 2, 1)};
  for (const std::size_t k : kKeys) outputs[k] = shards.redistribute(outputs[k], 1, 2);
  if (dims.sink >= 0) outputs[3] = shards.gather(outputs[3], 0);
  return outputs;
}

// Keys go from shard to shard, and the results of blocks of keys are merged by their log-sum-exp (Liu et al., ring attention,
// 2023). A shard attends to blocks of which it sees nothing as well, which costs next to nothing: what it computes depends on
// every move then, so that no pass takes a move from one shard and leaves it to another.
class Ring {
 public:
  Ring(const LocalArgs& args, const Cut& cut)
      : args_(args), dims_(attention_dims(args.whole)), shards_(cut), cut_(cut) {
    if (dims_.prefix >= 0 || dims_.query_offset >= 0 || dims_.bias >= 0 || dims_.attention_bitmask >= 0)
      throw hal::Error(
          "flash_attention divided as a ring",
          "takes full, causal and windowed attention, with segments, sinks and soft caps; gather takes all",
          dims_.extras());
    for (std::int64_t step = 0; step < cut.places; ++step)
      if (visible(step) || visible(step - cut.places)) last_ = step;
  }

  std::vector<Tensor> forward() {
    Tensor o, lse;
    for (std::int64_t step = 0; step <= last_; ++step) {
      move_keys(step, {1, 2, dims_.k_segments});
      const std::vector<Tensor> made = call(step);
      const Tensor features_first = permute(made[0], {3, 0, 2, 1});  // (B, H, S) is its trailing part
      if (!o) {
        o = cast(features_first, DType::f32), lse = made[1];
        continue;
      }
      const auto [a, b] = inputs<2>();
      const Expr row_max = max(max(a, b), kNothing);
      const Tensor both = elementwise({lse, made[1]}, row_max + log(exp(a - row_max) + exp(b - row_max)));
      const auto [x, y, of_x, of_y, of_both] = inputs<5>();
      const Expr safe = max(of_both, kNothing);
      o = elementwise({o, features_first, lse, made[1], both}, {x * exp(of_x - safe) + y * exp(of_y - safe)},
                      o.shape())[0];
      lse = both;
    }
    return {cast(permute(o, {1, 3, 2, 0}), args_.inputs[0].dtype()), lse};
  }

  // The gradients of keys travel with them, and home at the end.
  std::vector<Tensor> backward() {
    Tensor dq, dsink;
    std::vector<Tensor> of_keys(2);
    for (std::int64_t step = 0; step <= last_; ++step) {
      move_keys(step, {1, 2, dims_.k_segments});
      if (step > 0)
        for (Tensor& sum : of_keys) sum = shards_.passed(sum, 1);
      const std::vector<Tensor> made = call(step);
      dq = added(dq, made[0]);
      for (const std::size_t k : kKeys) of_keys[k - 1] = added(of_keys[k - 1], made[k]);
      if (step == 0 && dims_.sink >= 0) dsink = shards_.sum(made[3]);
    }
    std::vector<Tensor> result{cast(dq, args_.inputs[0].dtype())};
    for (Tensor& sum : of_keys)
      result.push_back(cast(shards_.passed(sum, shards_.places() - last_), args_.inputs[0].dtype()));
    if (dsink) result.push_back(dsink);
    return result;
  }

 private:
  static constexpr double kNothing = -1e30;  // in place of the minus infinity of a row that sees nothing

  // How many parts the shard whose keys are here stands in front of this one.
  std::int64_t block(std::int64_t step) const {
    return step <= shards_.place() ? step : step - shards_.places();
  }

  // Whether queries see keys so many parts in front of them; they always see their own, which have the sink.
  bool visible(std::int64_t parts) const {
    AttentionMask mask{cut_.count, cut_.count, parts * cut_.count, dims_.left, dims_.right};
    return parts == 0 || mask.window_pairs() > 0;
  }

  void move_keys(std::int64_t step, std::initializer_list<int> keys) {
    if (step == 0) inputs_ = args_.inputs;
    for (const int k : keys)
      if (step > 0 && k >= 0) inputs_[place_of(k)] = shards_.passed(inputs_[place_of(k)], 1);
  }

  std::vector<Tensor> call(std::int64_t step) const {
    const std::int64_t parts = block(step);
    AttentionMask mask{cut_.count, cut_.count, parts * cut_.count, dims_.left, dims_.right};
    AttentionDims dims = dims_;
    // What shows all of a block is no window.
    if (mask.window_cover(0, cut_.count, 0, cut_.count) == Cover::full) dims.left = dims.right = kUnlimited;
    const Attrs moved = moved_queries(args_.attrs, dims, parts * cut_.count);
    Attrs attrs;
    for (const auto& [name, value] : moved.items())
      if (parts == 0 || name != "sink") attrs.set(name, value);
    std::vector<Tensor> inputs = inputs_;
    if (parts != 0 && dims_.sink >= 0) inputs.erase(inputs.begin() + dims_.sink);
    return args_.builder.call(args_.whole.op, inputs, attrs);
  }

  static Tensor added(Tensor sum, Tensor more) {
    more = cast(more, DType::f32);
    return sum ? add(sum, more) : more;
  }

  const LocalArgs& args_;
  AttentionDims dims_;
  Shards shards_;
  Cut cut_;
  std::vector<Tensor> inputs_;
  std::int64_t last_ = 0;  // step in which any shard sees its keys
};

}  // namespace

std::vector<Tensor> local(const LocalArgs& args) {
  const auto found = args.cuts.find('S');
  if (found == args.cuts.end()) return args.builder.call(args.whole.op, args.inputs, args.attrs);
  const Cut& cut = found->second;
  if (args.method.empty() || args.method == "gather") return with_all_keys(args, cut);
  if (args.method == "all_to_all") return with_own_heads(args, cut);
  if (args.method != "ring")
    throw hal::Error("flash_attention", "a sequence is divided by gather, all_to_all or ring",
                     "'" + args.method + "'");
  Ring ring(args, cut);
  return args.whole.op == "flash_attention" ? ring.forward() : ring.backward();
}

}  // namespace meshloom::kernels::flash_attention_parts
